// The embedding `guild-hash-v1`, written from docs/formats/embedding.md alone.
const MASK = (1n << 64n) - 1n

function hash (bytes) {
  let h = 0xcbf29ce484222325n
  for (const byte of bytes) h = ((h ^ BigInt(byte)) * 0x100000001b3n) & MASK
  h = ((h ^ (h >> 33n)) * 0xff51afd7ed558ccdn) & MASK
  h = ((h ^ (h >> 33n)) * 0xc4ceb9fe1a85ec53n) & MASK
  return h ^ (h >> 33n)
}

function root (n) {
  if (n < 2n) return n
  let x = BigInt(Math.floor(Math.sqrt(Number(n))))
  while (x * x > n) x -= 1n
  while ((x + 1n) * (x + 1n) <= n) x += 1n
  return x
}

function words (text) {
  const found = []
  let word = []
  for (let byte of Buffer.from(text, 'utf8')) {
    if (byte >= 0x41 && byte <= 0x5a) byte += 0x20
    const within = (byte >= 0x30 && byte <= 0x39) || (byte >= 0x61 && byte <= 0x7a) || byte >= 0x80
    if (within) word.push(byte)
    else if (word.length) { found.push(Buffer.from(word)); word = [] }
  }
  if (word.length) found.push(Buffer.from(word))
  return found
}

export function embed (text, dimensions = 256) {
  const features = new Map()
  const add = (bytes, weight) => {
    const h = hash(bytes)
    const known = features.get(h)
    if (known) known.times += 1n
    else features.set(h, { weight, times: 1n })
  }
  let before = null
  for (const word of words(text)) {
    add(Buffer.concat([Buffer.from('w'), word]), 4n)
    if (before) add(Buffer.concat([Buffer.from('p'), before, Buffer.from(' '), word]), 2n)
    const marked = Buffer.concat([Buffer.from('<'), word, Buffer.from('>')])
    for (let i = 0; i + 3 <= marked.length; i++) {
      add(Buffer.concat([Buffer.from('t'), marked.subarray(i, i + 3)]), 1n)
    }
    before = word
  }
  const sums = new Array(dimensions).fill(0n)
  for (const [h, { weight, times }] of features) {
    const strength = weight * root(times * 65536n)
    const place = Number((h >> 1n) % BigInt(dimensions))
    sums[place] += h & 1n ? -strength : strength
  }
  if (sums.every(sum => sum === 0n)) sums[0] = 1n
  const squares = sums.reduce((all, sum) => all + sum * sum, 0n)
  return sums.map(sum => {
    const millionths = (root(4n * 10n ** 12n * sum * sum / squares) + 1n) / 2n
    const size = Number(millionths) / 1e6
    return sum < 0n && size !== 0 ? -size : size
  })
}
