// Schedule a record with KafkaJS, another one, and cancel that: node delayed.js SERVERS DELAY_TOPIC
const { Kafka, Partitioners } = require('kafkajs')

const [servers, topic] = process.argv.slice(2)
const kafka = new Kafka({ brokers: servers.split(',') })
const producer = kafka.producer({ idempotent: true, createPartitioner: Partitioners.DefaultPartitioner })

async function main() {
  const due = Date.now() + 2000
  const messages = [
    { key: '42', value: '{"order": 42}', headers: { 'deliver-at': String(due), 'deliver-id': 'order-42' } },
    { key: '42', value: '{"reminder": 42}', headers: { 'deliver-after': 'PT1H', 'deliver-id': 'reminder-42' } },
    // The same key: a cancel holds in its own partition.
    { key: '42', value: null, headers: { 'deliver-cancel': 'reminder-42' } },
  ]
  await producer.connect()
  await producer.send({ topic, messages })
  await producer.disconnect()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
