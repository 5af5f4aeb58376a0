// kafkajs against one broker: admin, produce (plain and gzip), consume with a group, offsets.
// Prints "ok" and exits 0, or prints the error.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

async function run(bootstrap, topic) {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 8 } });
  const admin = kafka.admin();
  await admin.connect();
  const topics = [{ topic, numPartitions: 2, replicationFactor: 1 }];
  if (!(await admin.createTopics({ topics }))) throw new Error("the topic was there already");
  const producer = kafka.producer();
  await producer.connect();
  const messages = Array.from({ length: 100 }, (_, i) => ({ key: `k${i}`, value: `v${i}`, headers: { h: "1" } }));
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    await producer.send({ topic, messages, compression, acks: -1 });
  }
  const timestamp = "1700000000123";
  await producer.send({ topic, acks: -1, messages: [{ key: "tombstone", value: null, timestamp, headers: { h: "1" } }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: `${topic}-group` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let seen = 0;
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`only ${seen} records came`)), 30000);
    consumer.run({
      eachMessage: async ({ message }) => {
        if (message.headers.h.toString() !== "1") reject(new Error("header lost"));
        const isTombstone = message.key.toString() === "tombstone";
        if (isTombstone && (message.value !== null || message.timestamp !== timestamp)) reject(new Error("not a tombstone"));
        if (++seen === 201) {
          clearTimeout(timer);
          resolve();
        }
      },
    });
  });
  await consumer.stop();
  await consumer.disconnect();
  const ends = await admin.fetchTopicOffsets(topic);
  const total = ends.reduce((sum, end) => sum + Number(end.high), 0);
  if (total !== 201) throw new Error(`log ends add up to ${total}`);
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
}

run(process.argv[2], process.argv[3]).then(
  () => console.log("ok"),
  (error) => {
    console.error(error.stack);
    process.exit(1);
  },
);
