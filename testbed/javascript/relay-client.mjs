// Uses a relay as a stranger would: `relay-client.mjs ws://host:port/path`. Prints what it saw as one line of JSON.
import assert from 'node:assert/strict'
import { finalizeEvent, generateSecretKey, getPublicKey, verifyEvent } from 'nostr-tools/pure'
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay'
import { makeAuthEvent } from 'nostr-tools/nip42'
import * as nip11 from 'nostr-tools/nip11'
import * as nip59 from 'nostr-tools/nip59'
import WebSocket from 'ws'

useWebSocketImplementation(WebSocket)
const url = process.argv[2]
const now = () => Math.floor(Date.now() / 1000)
const alice = generateSecretKey()
const bob = generateSecretKey()
const seen = {}

function sign (key, kind, content, tags = [], age = 0) {
  return finalizeEvent({ kind, content, tags, created_at: now() - age }, key)
}

// Everything that is stored, as the relay gives it.
function query (relay, filters) {
  return new Promise((resolve, reject) => {
    const events = []
    const sub = relay.subscribe(filters, {
      onevent: event => events.push(event),
      oneose: () => { resolve(events); sub.close() },
      onclose: reason => reject(new Error(reason))
    })
  })
}

const refused = promise => promise.then(() => 'accepted', error => String(error.message ?? error))

const relay = await Relay.connect(url)
const listener = await Relay.connect(url)

// Published by one, seen by another: stored first, then EOSE, then live.
const card = sign(alice, 31990, '{"name":"one"}', [['d', 'x'], ['k', '5050']], 60)
await relay.publish(card)
const live = []
let ended = false
const waiting = new Promise(resolve => {
  listener.subscribe([{ kinds: [31990], authors: [getPublicKey(alice)] }], {
    onevent: event => { live.push([ended, event.content]); if (ended) resolve() },
    oneose: () => { ended = true }
  })
})
while (!ended) await new Promise(resolve => setTimeout(resolve, 5))
const newer = sign(alice, 31990, '{"name":"two"}', [['d', 'x'], ['k', '5050']])
await relay.publish(newer)
await waiting
seen.live = live
const cards = await query(relay, [{ kinds: [31990], '#k': ['5050'], authors: [getPublicKey(alice)] }])
assert(cards.every(verifyEvent))
seen.replaced = cards.map(event => event.content)

// Deleted by its author.
const note = sign(alice, 1, 'soon gone', [], 30)
await relay.publish(note)
await relay.publish(sign(bob, 5, '', [['e', note.id]]))
seen.not_by_others = (await query(relay, [{ ids: [note.id] }])).length
await relay.publish(sign(alice, 5, '', [['e', note.id]]))
seen.deleted = (await query(relay, [{ ids: [note.id] }])).length
await refused(relay.publish(note))
seen.deleted_for_good = (await query(relay, [{ ids: [note.id] }])).length

// Refused.
const forged = { ...sign(alice, 1, 'honest'), content: 'changed' }
delete forged[Symbol.for('verified')]
seen.forged = (await refused(relay.publish(forged))).split(':')[0]
seen.expired = await refused(relay.publish(sign(alice, 1, '', [['expiration', String(now() - 10)]])))
seen.future = (await refused(relay.publish(finalizeEvent({ kind: 1, content: '', tags: [], created_at: now() + 7200 }, alice)))).split(':')[0]

// Passed on, never kept.
const passing = new Promise(resolve => listener.subscribe([{ kinds: [20001], limit: 0 }], { onevent: e => resolve(e.content) }))
await new Promise(resolve => setTimeout(resolve, 100))
await relay.publish(sign(alice, 20001, 'hello'))
seen.ephemeral = await passing
seen.ephemeral_kept = (await query(relay, [{ kinds: [20001] }])).length

// A private message: only to its recipient, once that has proven its key.
const wrap = nip59.wrapEvent({ kind: 14, content: 'secret', tags: [] }, alice, getPublicKey(bob))
await relay.publish(wrap)
seen.wrap_unproven = await refused(query(relay, [{ kinds: [1059], '#p': [getPublicKey(bob)] }]))
const asBob = await Relay.connect(url)
while (!asBob.challenge) await new Promise(resolve => setTimeout(resolve, 5))
await asBob.auth(template => finalizeEvent(template, bob))
seen.wrap = (await query(asBob, [{ kinds: [1059], '#p': [getPublicKey(bob)] }])).map(event => nip59.unwrapEvent(event, bob).content)
const asAlice = await Relay.connect(url)
while (!asAlice.challenge) await new Promise(resolve => setTimeout(resolve, 5))
await asAlice.auth(template => finalizeEvent(template, alice))
seen.wrap_of_another = (await query(asAlice, [{ kinds: [1059], '#p': [getPublicKey(bob)] }])).length
const elsewhere = await Relay.connect(url)
while (!elsewhere.challenge) await new Promise(resolve => setTimeout(resolve, 5))
seen.proof_for_another = (await refused(elsewhere.auth(() => finalizeEvent(makeAuthEvent('wss://other.example', elsewhere.challenge), bob)))).split(':')[0]

// How many, and what the relay says about itself.
seen.count = await relay.count([{ kinds: [31990], authors: [getPublicKey(alice)] }], {})
nip11.useFetchImplementation(fetch)
const information = await nip11.fetchRelayInformation(url)
seen.nips = information.supported_nips
seen.limit = information.limitation.max_limit

for (const open of [relay, listener, asBob, asAlice, elsewhere]) open.close()
console.log(JSON.stringify(seen))
process.exit(0)
