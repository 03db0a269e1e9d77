// Benchmarks a node as a stranger would: `benchmark.mjs ws://relay task.json`. Prints what it saw as one line of JSON.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { finalizeEvent, generateSecretKey, verifyEvent } from 'nostr-tools/pure'
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay'
import * as nip44 from 'nostr-tools/nip44'
import WebSocket from 'ws'

useWebSocketImplementation(WebSocket)
const [url, file] = process.argv.slice(2)
const task = JSON.parse(readFileSync(file, 'utf8'))
const key = generateSecretKey()
const relay = await Relay.connect(url)

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

async function found () {
  for (;;) {
    const [card] = await query({ kinds: [31990], '#t': ['benchmark-task'] })
    if (card) { assert(verifyEvent(card)); return card }
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

const card = await found()
const provider = card.pubkey
const secret = nip44.getConversationKey(key, provider)
const text = JSON.stringify(task)
const common = [['output', 'application/json'], ['bid', '1000'], ['relays', url]]
const forms = {
  // As the NIP writes it,
  plain: { tags: [['p', provider], ['i', text, 'text', '', 'spec'], ['param', 'schema_id', 'guild.benchmark.v1'], ...common], content: '' },
  // the same so that nobody else reads it,
  sealed: {
    tags: [['p', provider], ...common, ['encrypted']],
    content: nip44.encrypt(JSON.stringify([['i', text, 'text', '', 'spec'], ['param', 'schema_id', 'guild.benchmark.v1']]), secret)
  },
  // and as the documents write it: another type, the marker in the relay's place, no schema, words as content.
  documented: {
    tags: [['p', provider], ['d', 'benchmark-eval-2024-001'], ['i', text, 'json', 'spec'],
      ['param', 'benchmark-type', 'standard'], ['param', 'time-limit', '300'], ['output', 'json'], ['bid', '1000'], ['relays', url]],
    content: 'Benchmark task for partnership evaluation.'
  }
}

function ask (form, sealed) {
  const event = finalizeEvent({ kind: 5000, created_at: Math.floor(Date.now() / 1000), ...form }, key)
  const told = []
  return new Promise((resolve, reject) => {
    const sub = relay.subscribe([{ kinds: [6000, 7000], '#e': [event.id] }], {
      onevent: answer => {
        assert(verifyEvent(answer))
        if (answer.pubkey !== provider) return
        const content = sealed && answer.content ? nip44.decrypt(answer.content, secret) : answer.content
        if (answer.kind === 7000) {
          const tags = sealed && content ? [...answer.tags, ...JSON.parse(content)] : answer.tags
          const status = tags.filter(tag => tag[0] === 'status').at(-1)
          told.push(status.slice(1))
          if (status[1] === 'error') { sub.close(); resolve({ told }) }
          return
        }
        sub.close()
        resolve({ told, output: JSON.parse(content) })
      },
      onclose: () => {}
    })
    relay.publish(event).catch(reject)
  })
}

const seen = {}
for (const [name, form] of Object.entries(forms)) seen[name] = await ask(form, name === 'sealed')
console.log(JSON.stringify(seen))
relay.close()
process.exit(0)
