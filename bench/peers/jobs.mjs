// What the job queues share: `--case NAME --seconds N --directory DIR --postgres URL` puts jobs into a fresh database,
// does them all, and prints one line of JSON.
export const BATCH = 50

export async function jobs (name, queue) {
  const given = new Map()
  for (let i = 2; i + 1 < process.argv.length; i += 2) given.set(process.argv[i], process.argv[i + 1])
  const url = given.get('--postgres')
  const count = Math.max(1, Math.round(Number(given.get('--seconds')))) * 10_000
  if (url === undefined || !Number.isSafeInteger(count)) {
    console.error('give --seconds N --postgres URL')
    process.exit(2)
  }
  const done = new Uint32Array(count)
  const payloads = Array.from({ length: count }, (_, number) => ({ number, body: 'x'.repeat(200) }))
  const { started, ended, open } = await queue(url, payloads, payload => {
    if (payload.body.length !== 200) throw new Error('a job came without its body')
    done[payload.number] += 1
  })
  if (!done.every(times => times === 1)) throw new Error('a job was not done, or was done twice')
  if (open !== 0) throw new Error(`${open} jobs are still open`)
  const perS = Math.round(count / ((ended - started) / 1000))
  console.log(JSON.stringify({ name, per_s: perS, result: `${count} jobs done once` }))
}
