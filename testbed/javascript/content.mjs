// Content of a node, seen by others: npm `ipfs-unixfs-importer` makes the same CIDs of the same bytes, Kubo's own client
// adds and reads, and `ipfs-unixfs-exporter` puts files together again from blocks that it has fetched one by one.
import { importer } from 'ipfs-unixfs-importer'
import { fixedSize } from 'ipfs-unixfs-importer/chunker'
import { balanced } from 'ipfs-unixfs-importer/layout'
import { exporter } from 'ipfs-unixfs-exporter'
import { create } from 'kubo-rpc-client'
import { sha256 } from 'multiformats/hashes/sha2'

const [url, token] = process.argv.slice(2)
const client = create({ url: `${url}/api/v0`, headers: { authorization: `Bearer ${token}` } })

let fetched = 0
const gateway = {
  async * get (cid) {
    const answer = await fetch(`${url}/ipfs/${cid}?format=raw`)
    if (answer.status !== 200) throw new Error(`${cid}: ${answer.status}`)
    const bytes = new Uint8Array(await answer.arrayBuffer())
    const { digest } = await sha256.digest(bytes)
    if (Buffer.compare(digest, cid.multihash.digest) !== 0) throw new Error(`${cid} has other bytes`)
    fetched += 1
    yield bytes
  }
}

function pattern (size) {
  const bytes = new Uint8Array(size)
  for (let i = 0; i < size; i++) bytes[i] = (i * 31 + (i >> 8) * 7 + 11) & 0xff
  return bytes
}

async function all (pieces) {
  const found = []
  for await (const piece of pieces) found.push(piece)
  return found
}

const nowhere = { async put (cid) { return cid } }
const same = []
for (const size of [0, 1, 262144, 262145, 1000000, 48000000]) {
  for (const [cidVersion, rawLeaves] of [[0, false], [1, true], [1, false]]) {
    const content = pattern(size)
    const options = {
      cidVersion,
      rawLeaves,
      chunker: fixedSize({ chunkSize: 262144 }),
      layout: balanced({ maxChildrenPerNode: 174 }),
      wrapWithDirectory: true
    }
    const theirs = (await all(importer([{ path: 'a/data.bin', content: [content] }], nowhere, options))).at(-1)
    const added = await all(client.addAll([{ path: 'a/data.bin', content }],
      { cidVersion, rawLeaves, wrapWithDirectory: true, pin: true }))
    const ours = added.at(-1)
    if (!theirs.cid.equals(ours.cid)) throw new Error(`${size} ${cidVersion} ${rawLeaves}: ${theirs.cid} ${ours.cid}`)
    const file = await exporter(`${ours.cid}/a/data.bin`, gateway)
    const read = Buffer.concat(await all(file.content()))
    if (Buffer.compare(read, content) !== 0) throw new Error(`${size}: other bytes`)
    const [offset, length] = [Math.floor(size / 3), Math.min(1000, size - Math.floor(size / 3))]
    const part = Buffer.concat(await all(file.content({ offset, length })))
    const range = size === 0 ? new Uint8Array() : new Uint8Array(await (await fetch(`${url}/ipfs/${ours.cid}/a/data.bin`,
      { headers: { range: `bytes=${offset}-${offset + length - 1}` } })).arrayBuffer())
    if (Buffer.compare(part, range) !== 0) throw new Error(`${size}: another part`)
    same.push(ours.cid.toString())
  }
}

const note = await client.add('hello', { cidVersion: 1 })
const block = await client.block.put(new TextEncoder().encode('a block'), { format: 'raw' })
const pins = (await all(client.pin.ls())).map(pin => pin.cid.toString())
await client.pin.rm(note.cid)
let refused = null
try {
  await create({ url: `${url}/api/v0` }).add('nobody may')
} catch (error) {
  refused = error.message
}
console.log(JSON.stringify({
  same: same.length,
  fetched: fetched > 500,
  note: note.cid.toString(),
  read: Buffer.concat(await all(client.cat(note.cid))).toString(),
  block: Buffer.from(await client.block.get(block)).toString(),
  pinned: pins.includes(note.cid.toString()) && same.every(cid => pins.includes(cid) || cid.startsWith('Qm')),
  refused
}))
