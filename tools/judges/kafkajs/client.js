// kafkajs as a judge: a request a line on stdin, an answer a line on stdout, both JSON, as the programs of the other clients.
'use strict'

// The folder that npm filled comes first, the brokers second: this file stays where it is.
const [modules, servers] = process.argv.slice(2)
const need = require('node:module').createRequire(require('node:path').join(modules, 'package.json'))
const { Kafka, CompressionTypes, CompressionCodecs, Partitioners, PartitionAssigners, logLevel } = need('kafkajs')
const lz4 = need('lz4js')
const zstd = need('@bokuweb/zstd-wasm')

CompressionCodecs[CompressionTypes.Snappy] = need('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
})
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const TOPIC_RESOURCE = 2

const kafka = new Kafka({ brokers: servers.split(','), logLevel: logLevel.NOTHING, retry: { retries: 5 } })
const producers = {}
const transactions = {}
const text = (bytes) => (bytes === null ? null : bytes.toString())
let member
let opened

async function admin() {
  if (!opened) {
    opened = kafka.admin()
    await opened.connect()
  }
  return opened
}

// kafkajs reads only as a member of a group.
async function consume(groupId, topics, options, eachMessage) {
  const consumer = kafka.consumer({
    groupId,
    partitionAssigners: [PartitionAssigners.roundRobin],
    heartbeatInterval: 300,
    sessionTimeout: 10000,
    ...options,
  })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  await consumer.run({ autoCommitInterval: 100, eachMessage })
  return consumer
}

const handlers = {
  async write({ topic, codec, count, prefix }) {
    const producer = kafka.producer({ idempotent: true, createPartitioner: Partitioners.DefaultPartitioner })
    await producer.connect()
    const messages = Array.from({ length: count }, (_, n) => ({ key: `key-${n}`, value: `${prefix}-${n}-${'x'.repeat(50)}` }))
    await producer.send({ topic, messages, compression: CODECS[codec], acks: -1 })
    await producer.disconnect()
  },

  async read({ topics, count, committed }) {
    const found = []
    let finish
    const all = new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`${found.length} of ${count} records came`)), 60000)
      finish = () => { clearTimeout(late); resolve() }
    })
    const group = `kafkajs-${process.pid}-${Math.random()}`
    const consumer = await consume(group, topics, { readUncommitted: !committed }, async ({ topic, partition, message }) => {
      found.push([topic, partition, Number(message.offset), text(message.key), text(message.value)])
      if (found.length === count) finish()
    })
    try {
      if (count) await all
    } finally {
      await consumer.disconnect()
    }
    return found
  },

  async init({ name, id, timeout_ms: transactionTimeout }) {
    producers[name] = kafka.producer({ transactionalId: id, transactionTimeout, maxInFlightRequests: 1, idempotent: true, createPartitioner: Partitioners.DefaultPartitioner })
    await producers[name].connect()
  },
  async begin({ name }) { transactions[name] = await producers[name].transaction() },
  async send({ name, topic, value }) { await transactions[name].send({ topic, messages: [{ value }], acks: -1 }) },
  async offsets({ name, group, topic, offset }) {
    const topics = [{ topic, partitions: [{ partition: 0, offset: String(offset) }] }]
    await transactions[name].sendOffsets({ consumerGroupId: group, topics })
  },
  async commit({ name }) { await transactions[name].commit() },
  async abort({ name }) { await transactions[name].abort() },

  async create({ topic, partitions }) { await (await admin()).createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1 }] }) },
  async describe({ topic }) { return (await (await admin()).fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length },
  async topics() { return (await (await admin()).listTopics()).sort() },
  async alter({ topic, key, value }) {
    await (await admin()).alterConfigs({ validateOnly: false, resources: [{ type: TOPIC_RESOURCE, name: topic, configEntries: [{ name: key, value }] }] })
  },
  async config({ topic, key }) {
    const answer = await (await admin()).describeConfigs({ includeSynonyms: false, resources: [{ type: TOPIC_RESOURCE, name: topic, configNames: [key] }] })
    return answer.resources[0].configEntries[0].configValue
  },
  async delete_records({ topic, offset }) { await (await admin()).deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: String(offset) }] }) },
  async groups() { return (await (await admin()).listGroups()).groups.map((one) => one.groupId).sort() },
  async group({ group }) { return (await (await admin()).describeGroups([group])).groups[0].state },
  async delete({ topic }) { await (await admin()).deleteTopics({ topics: [topic] }) },

  async join({ group, topic }) {
    const joined = { values: [], assigned: [] }
    joined.consumer = await consume(group, [topic], {}, async ({ message }) => { joined.values.push(text(message.value)) })
    joined.consumer.on(joined.consumer.events.GROUP_JOIN, ({ payload }) => { joined.assigned = payload.memberAssignment[topic] || [] })
    member = joined
  },
  async seen() { return { values: member.values, assigned: [...member.assigned].sort() } },
  async leave() { await member.consumer.disconnect() },
}

async function main() {
  await zstd.init()
  for await (const line of require('node:readline').createInterface({ input: process.stdin })) {
    const { do: name, ...request } = JSON.parse(line)
    let answer
    try {
      answer = { ok: (await handlers[name](request)) ?? null }
    } catch (error) {
      answer = { error: `${error.type || error.name}: ${error.message}` }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

main()
