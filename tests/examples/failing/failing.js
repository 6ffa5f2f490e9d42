// A consumer that fails with the record at an offset, and sends it to the retry topic.
const { Kafka } = require('kafkajs')

const [servers, topic, offset] = process.argv.slice(2)
const kafka = new Kafka({ brokers: servers.split(',') })
const consumer = kafka.consumer({ groupId: `failing-${process.pid}` })
const producer = kafka.producer({ idempotent: true })

async function handle(message) {
  throw new Error(`the database is away: ${message.key}`)
}

async function fail(message) {
  const { key, value, headers } = message
  try {
    await handle(message)
  } catch (failed) {
    await producer.send({ topic: 'orders.retry', messages: [{ key, value, headers }] })  // of the message
  }
}

async function main() {
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await new Promise((done, failed) => {
    const eachMessage = ({ message }) => (message.offset === offset ? fail(message).then(done, failed) : null)
    consumer.run({ autoCommit: false, eachMessage }).catch(failed)
  })
  await consumer.disconnect()
  await producer.disconnect()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
