// Works for others as a stranger would: `provider.mjs ws://relay price-msat jobs`. Announces itself, answers so many
// requests, waits for as many receipts, and prints each step as one line of JSON.
import assert from 'node:assert/strict'
import { finalizeEvent, generateSecretKey, getPublicKey, verifyEvent } from 'nostr-tools/pure'
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay'
import { npubEncode } from 'nostr-tools/nip19'
import * as nip44 from 'nostr-tools/nip44'
import WebSocket from 'ws'
import { embed } from './embedding.mjs'

useWebSocketImplementation(WebSocket)
const [url, price, jobs] = process.argv.slice(2)
const now = () => Math.floor(Date.now() / 1000)
const key = generateSecretKey()
const own = getPublicKey(key)
const say = line => console.log(JSON.stringify(line))
const relay = await Relay.connect(url)
const publish = (kind, tags, content) => relay.publish(finalizeEvent({ kind, created_at: now(), tags, content }, key))
const first = (tags, name) => tags.find(tag => tag[0] === name)

const card = {
  name: 'A stranger',
  capabilities: { supported_jobs: ['oa.embedding.v1'] },
  pricing: { scheme: 'per-job', per_job_msats: { 'oa.embedding.v1': Number(price) } },
  supportsEncryption: true
}
const tags = [['d', 'stranger'], ['k', '5050'], ['t', 'oa.embedding.v1'], ['relays', url]]
await publish(31990, tags, JSON.stringify(card))
await publish(11998, [['d', 'stranger'], ['expiration', String(now() + 300)]], '')

async function work (event) {
  const sealed = first(event.tags, 'encrypted') !== undefined
  const secret = nip44.getConversationKey(key, event.pubkey)
  const told = sealed ? JSON.parse(nip44.decrypt(event.content, secret)) : event.tags
  const input = JSON.parse(first(told, 'i')[1])
  const dimensions = input.dimensions ?? 256
  const output = {
    embeddings: input.texts.map(text => embed(text, dimensions)), model_id: 'guild-hash-v1', dimensions,
    provenance: { model: 'guild-hash-v1', provider_id: npubEncode(own) }
  }
  const about = [['e', event.id], ['p', event.pubkey]]
  await publish(7000, [['status', 'processing', ''], ['amount', price], ...about], '')
  const content = JSON.stringify(output)
  const result = [['request', JSON.stringify(event)], ...about, ['amount', price]]
  if (sealed) await publish(6050, [...result, ['encrypted']], nip44.encrypt(content, secret))
  else await publish(6050, [...result, first(event.tags, 'i')], content)
  say({ worked: event.id, sealed })
}

let receipts = 0
const seen = new Set()
relay.subscribe([{ kinds: [5050], '#p': [own] }, { kinds: [30078], '#p': [own] }], {
  onevent: event => {
    assert(verifyEvent(event))
    if (seen.has(event.id)) return
    seen.add(event.id)
    if (event.kind === 5050) { work(event).catch(error => { say({ failed: String(error) }); process.exit(1) }); return }
    const sealed = first(event.tags, 'encrypted') !== undefined
    const text = sealed ? nip44.decrypt(event.content, nip44.getConversationKey(key, event.pubkey)) : event.content
    const receipt = JSON.parse(text)
    say({ receipt: receipt.receipt_id, request: receipt.request_id, status: receipt.status, amount_msats: receipt.amount_msats, sealed, text })
    receipts += 1
    if (receipts === Number(jobs)) process.exit(0)
  }
})
say({ provider: own })
