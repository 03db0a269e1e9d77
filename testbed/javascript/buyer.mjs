// Hires a node as a stranger would: `buyer.mjs ws://relay [image]`. Prints what it saw as one line of JSON. With an image
// it also has commands run in it.
import assert from 'node:assert/strict'
import { finalizeEvent, generateSecretKey, getPublicKey, verifyEvent } from 'nostr-tools/pure'
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay'
import * as nip44 from 'nostr-tools/nip44'
import WebSocket from 'ws'
import { embed } from './embedding.mjs'

useWebSocketImplementation(WebSocket)
const url = process.argv[2]
const now = () => Math.floor(Date.now() / 1000)
const key = generateSecretKey()
const relay = await Relay.connect(url)

// Everything that is stored, as the relay gives it.
function query (filter) {
  return new Promise((resolve, reject) => {
    const events = []
    const sub = relay.subscribe([filter], {
      onevent: event => events.push(event),
      oneose: () => { resolve(events); sub.close() },
      onclose: reason => reject(new Error(reason))
    })
  })
}

async function providerFor (schema) {
  for (;;) {
    const [card] = await query({ kinds: [31990], '#t': [schema] })
    if (card) { assert(verifyEvent(card)); return card }
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

const card = await providerFor('oa.embedding.v1')
const provider = card.pubkey
const image = process.argv[3]
const secret = nip44.getConversationKey(key, provider)

function request ({ schema, input, bid, sealed, open }) {
  const inner = [['i', JSON.stringify(input), 'text', '', 'spec'], ['param', 'schema_id', schema]]
  const outer = [['output', 'application/json'], ['bid', String(bid)], ['relays', url]]
  if (!open) outer.push(['p', provider])
  const draft = sealed
    ? { tags: [...outer, ['encrypted']], content: nip44.encrypt(JSON.stringify(inner), secret) }
    : { tags: [...inner, ...outer], content: '' }
  return finalizeEvent({ kind: 5050, created_at: now(), ...draft }, key)
}

// Publishes a request; what came back until it was delivered or refused.
function hire (terms) {
  const event = request(terms)
  const told = []
  return new Promise((resolve, reject) => {
    const sub = relay.subscribe([{ kinds: [6050, 7000], '#e': [event.id] }], {
      onevent: answer => {
        assert(verifyEvent(answer))
        if (answer.pubkey !== provider) return
        const content = terms.sealed && answer.content ? nip44.decrypt(answer.content, secret) : answer.content
        if (answer.kind === 7000) {
          const tags = terms.sealed && content ? [...answer.tags, ...JSON.parse(content)] : answer.tags
          const status = tags.filter(tag => tag[0] === 'status').at(-1)
          told.push(status.slice(1))
          if (status[1] === 'error') { sub.close(); resolve({ told }) }
          return
        }
        sub.close()
        const amount = answer.tags.find(tag => tag[0] === 'amount')?.[1]
        resolve({ told, amount, output: JSON.parse(content) })
      },
      onclose: () => {}
    })
    relay.publish(event).catch(reject)
  })
}

const texts = ['Hello, world!', 'the guild pays by the minute']
const input = { texts, dimensions: 16 }
const schema = 'oa.embedding.v1'
const right = done => assert.deepEqual(done.output.embeddings, texts.map(text => embed(text, 16)))
const plain = await hire({ schema, input, bid: 1_000_000 })
right(plain)
const sealed = await hire({ schema, input, bid: 1_000_000, sealed: true })
right(sealed)
const open = await hire({ schema, input, bid: 1_000_000, open: true })
right(open)
const unknown = await hire({ schema: 'oa.unheard_of.v1', input, bid: 1_000_000 })
const cheap = await hire({ schema, input, bid: 0 })
const rubbish = await hire({ schema, input: { texts: 'not a list' }, bid: 1_000_000 })
const tree = { 'a.sh': 'tr a-z A-Z < b.txt | tee c.txt\n', 'b.txt': 'hello\n' }
const run = image && await hire({
  schema: 'oa.sandbox_run.v1',
  bid: 1_000_000,
  input: {
    sandbox: { image_digest: image },
    repo: { source: 'env:FILES' },
    env: { FILES: JSON.stringify(tree) },
    commands: [{ cmd: 'sh a.sh' }, { cmd: 'exit 3' }]
  }
})
const said = done => done.told.map(([status, words]) => words ? `${status}: ${words}` : status)
console.log(JSON.stringify({
  kinds: card.tags.filter(tag => tag[0] === 'k').map(tag => tag[1]),
  amounts: [plain.amount, sealed.amount, open.amount],
  plain: said(plain), sealed: said(sealed), open: said(open),
  unknown: said(unknown), cheap: said(cheap), rubbish: said(rubbish),
  run: run && { told: said(run), amount: run.amount, output: run.output },
  customer: getPublicKey(key)
}))
relay.close()
process.exit(0)
