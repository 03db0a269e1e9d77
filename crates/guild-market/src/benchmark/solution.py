"""The functions of std-v3."""

from collections import OrderedDict, deque

SETTINGS = {}


def checksum(numbers):
    """Fold numbers into one."""
    total = SETTINGS["start"]
    for number in numbers:
        total = (total * SETTINGS["factor"] + number) % SETTINGS["modulus"]
    return total


def count_pairs(numbers, target):
    """Count the pairs that add up to a target."""
    seen, pairs = {}, 0
    for number in numbers:
        pairs += seen.get(target - number, 0)
        seen[number] = seen.get(number, 0) + 1
    return pairs


def cache_trace(capacity, operations):
    """Say what a cache gives."""
    if capacity < 1:
        raise ValueError("capacity")
    entries, read = OrderedDict(), []
    for key, *value in operations:
        known = key in entries
        if not value:
            read.append(entries.get(key, SETTINGS["miss"]))
        else:
            if not known and len(entries) >= capacity:
                entries.popitem(last=False)
            entries[key] = value[0]
        if known and SETTINGS["touches"]:
            entries.move_to_end(key)
    return read


def window_max(numbers, width):
    """Give the largest number of each window."""
    if not 1 <= width <= len(numbers):
        raise ValueError("width")
    places, found = deque(), []
    for at, number in enumerate(numbers):
        while places and numbers[places[-1]] <= number:
            places.pop()
        places.append(at)
        if places[0] <= at - width:
            places.popleft()
        if at >= width - 1:
            found.append(numbers[places[0]])
    return found


def parse_records(text):
    """Read records."""
    records = {}
    for line in text.split("\n"):
        line = line.strip()
        if not line or line.startswith(SETTINGS["comment"]):
            continue
        key, separator, value = line.partition(SETTINGS["separator"])
        key = key.strip()
        if not separator or not key:
            raise ValueError(line)
        if not (SETTINGS["keeps_first"] and key in records):
            records[key] = value.strip()
    return records


def encode_runs(text):
    """Write runs of letters."""
    runs = []
    for letter in text:
        if runs and runs[-1][0] == letter:
            runs[-1][1] += 1
        else:
            runs.append([letter, 1])
    if SETTINGS["count_first"]:
        return "".join(f"{count}{letter}" for letter, count in runs)
    return "".join(f"{letter}{count}" for letter, count in runs)
