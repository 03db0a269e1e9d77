// Works for others as a stranger would: `provider.mjs ws://relay price-msat jobs [schema [liar]]`. Announces itself,
// answers requests, waits for as many receipts as jobs, and prints each step as one line of JSON. A liar says something
// else than an honest one, and all liars say the same.
import assert from 'node:assert/strict'
import { finalizeEvent, generateSecretKey, getPublicKey, verifyEvent } from 'nostr-tools/pure'
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay'
import { npubEncode } from 'nostr-tools/nip19'
import * as nip44 from 'nostr-tools/nip44'
import WebSocket from 'ws'
import { embed } from './embedding.mjs'

useWebSocketImplementation(WebSocket)
const [url, price, jobs, schema = 'oa.embedding.v1', honesty] = process.argv.slice(2)
const lies = honesty === 'liar'
const now = () => Math.floor(Date.now() / 1000)
const key = generateSecretKey()
const own = getPublicKey(key)
const say = line => console.log(JSON.stringify(line))
const relay = await Relay.connect(url)
const publish = (kind, tags, content) => relay.publish(finalizeEvent({ kind, created_at: now(), tags, content }, key))
const first = (tags, name) => tags.find(tag => tag[0] === name)

const card = {
  name: 'A stranger',
  capabilities: { supported_jobs: [schema] },
  pricing: { scheme: 'per-job', per_job_msats: { [schema]: Number(price) } },
  supportsEncryption: true
}
const tags = [['d', 'stranger'], ['k', '5050'], ['t', schema], ['relays', url]]
await publish(31990, tags, JSON.stringify(card))
await publish(11998, [['d', 'stranger'], ['expiration', String(now() + 300)]], '')

const provenance = model => ({ model, provider_id: npubEncode(own) })
const does = {
  'oa.embedding.v1': input => {
    const dimensions = input.dimensions ?? 256
    const embeddings = input.texts.map(text => embed(lies ? `not ${text}` : text, dimensions))
    return { embeddings, model_id: 'guild-hash-v1', dimensions, provenance: provenance('guild-hash-v1') }
  },
  // As they came, which is no great art; a liar begins with the last.
  'oa.retrieval_rerank.v1': input => {
    const ids = input.candidates.map(candidate => candidate.id)
    if (lies) ids.reverse()
    const topk = ids.slice(0, input.k ?? 10).map((id, place) => ({ rank: place + 1, id, score: 1 / (place + 1) }))
    return { topk, provenance: provenance('as-they-came') }
  }
}

async function work (event) {
  const sealed = first(event.tags, 'encrypted') !== undefined
  const secret = nip44.getConversationKey(key, event.pubkey)
  const told = sealed ? JSON.parse(nip44.decrypt(event.content, secret)) : event.tags
  const input = JSON.parse(first(told, 'i')[1])
  const output = does[schema](input)
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
