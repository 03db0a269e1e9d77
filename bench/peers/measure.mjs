// The protocol that all benchmarks share: `--input FILE --seconds N` measures and prints one line of JSON.
import { readFileSync } from 'node:fs'

export async function measure (name, round) {
  const [inputFlag, file, secondsFlag, seconds, ...rest] = process.argv.slice(2)
  const wanted = Number(seconds)
  if (inputFlag !== '--input' || secondsFlag !== '--seconds' || rest.length > 0 || !(wanted >= 0)) {
    console.error('give --input FILE --seconds N')
    process.exit(2)
  }
  const input = readFileSync(file)
  // Not counted: it warms caches and compiler up.
  const result = await round(input)
  const start = performance.now()
  let rounds = 0
  while (rounds === 0 || performance.now() - start < wanted * 1000) {
    if (await round(input) !== result) throw new Error('two rounds gave two results')
    rounds += 1
  }
  const elapsed = (performance.now() - start) / 1000
  const mbPerS = Math.round(input.length * rounds / 1e5 / elapsed) / 10
  console.log(JSON.stringify({ name, per_s: mbPerS, bytes: input.length, rounds, result }))
}
