"""The embedding `guild-hash-v1`, written from docs/formats/embedding.md alone."""

from math import isqrt

MASK = (1 << 64) - 1


def feature_hash(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & MASK
    h = ((h ^ (h >> 33)) * 0xFF51AFD7ED558CCD) & MASK
    h = ((h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53) & MASK
    return h ^ (h >> 33)


def words(text):
    word = bytearray()
    for byte in text.encode() + b" ":
        byte += 0x20 if 0x41 <= byte <= 0x5A else 0
        if 0x30 <= byte <= 0x39 or 0x61 <= byte <= 0x7A or byte >= 0x80:
            word.append(byte)
        elif word:
            yield bytes(word)
            word.clear()


def embed(text, dimensions=256):
    features = {}

    def add(data, weight):
        h = feature_hash(data)
        first, times = features.get(h, (weight, 0))
        features[h] = (first, times + 1)

    before = None
    for word in words(text):
        add(b"w" + word, 4)
        if before is not None:
            add(b"p" + before + b" " + word, 2)
        marked = b"<" + word + b">"
        for start in range(len(marked) - 2):
            add(b"t" + marked[start : start + 3], 1)
        before = word
    sums = [0] * dimensions
    for h, (weight, times) in features.items():
        strength = weight * isqrt(times * 65536)
        sums[(h >> 1) % dimensions] += -strength if h & 1 else strength
    if not any(sums):
        sums[0] = 1
    squares = sum(x * x for x in sums)

    def component(x):
        size = (isqrt(4 * 10**12 * x * x // squares) + 1) // 2 / 1e6
        return -size if x < 0 and size else size

    return [component(x) for x in sums]
