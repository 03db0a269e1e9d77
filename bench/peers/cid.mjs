// From content to its CID, with npm `ipfs-unixfs-importer`. The blocks are not stored.
import { importer } from 'ipfs-unixfs-importer'
import { fixedSize } from 'ipfs-unixfs-importer/chunker'
import { balanced } from 'ipfs-unixfs-importer/layout'
import { measure } from './measure.mjs'

const nowhere = { async put (cid) { return cid } }
const options = {
  rawLeaves: true,
  cidVersion: 1,
  chunker: fixedSize({ chunkSize: 262144 }),
  layout: balanced({ maxChildrenPerNode: 174 }),
  wrapWithDirectory: false
}

await measure('ipfs-unixfs-importer', async input => {
  let root
  for await (const entry of importer([{ content: [input] }], nowhere, options)) root = entry
  return root.cid.toString()
})
