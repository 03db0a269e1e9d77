// From the bytes of a JSON text to the hash over its canonical form, with npm `canonicalize`.
import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { measure } from './measure.mjs'

await measure('canonicalize', input => {
  const canonical = canonicalize(JSON.parse(input.toString('utf8')))
  return 'sha256:' + createHash('sha256').update(canonical).digest('hex')
})
