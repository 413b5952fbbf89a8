/* Throughput and latency through librdkafka, whose cost per record is small enough not to be what is measured.
 *
 *   stream produce BROKERS TOPIC RECORDS RECORD_BYTES CODEC ACKS [PARTITIONS]
 *   stream consume BROKERS TOPIC RECORDS
 *   stream latency BROKERS TOPIC RECORDS_PER_SECOND SECONDS ACKS
 *
 * Partition 0 of the topic, or the first PARTITIONS in turn. Prints one line of JSON; anything that is not acknowledged or not read is a failure.
 */
#define _GNU_SOURCE
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *what) {
    fprintf(stderr, "stream: %s\n", what);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[256];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK) die(why);
}

static long failed, delivered;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err) failed++;
    else delivered++;
}

static rd_kafka_t *producer(const char *brokers, const char *codec, const char *acks, const char *linger_ms) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", brokers);
    set(conf, "compression.type", codec);
    set(conf, "acks", acks);
    set(conf, "linger.ms", linger_ms);
    set(conf, "queue.buffering.max.messages", "1000000");
    set(conf, "queue.buffering.max.kbytes", "262144");
    set(conf, "max.in.flight.requests.per.connection", "5");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    char why[256];
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!rk) die(why);
    return rk;
}

static rd_kafka_t *consumer(const char *brokers, const char *wait_ms) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", brokers);
    set(conf, "group.id", "bench");
    set(conf, "enable.auto.commit", "false");
    set(conf, "auto.offset.reset", "earliest");
    /* A full queue would stop fetching for up to a second: whatever is read in one run fits in. */
    set(conf, "queued.min.messages", "10000000");
    set(conf, "queued.max.messages.kbytes", "2097151");
    set(conf, "fetch.wait.max.ms", wait_ms);
    set(conf, "fetch.error.backoff.ms", "1");
    char why[256];
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (!rk) die(why);
    return rk;
}

static void assign(rd_kafka_t *rk, const char *topic, int64_t offset) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, 0)->offset = offset;
    if (rd_kafka_assign(rk, list)) die("assign");
    rd_kafka_topic_partition_list_destroy(list);
}

/* Records repeat after so many bytes: further back than a batch reaches, so that no codec finds a record twice. */
#define POOL_BYTES (4 << 20)

/* Text-like bytes: lz4 makes them half as long, zstd a third, as with logs and JSON. */
static char *payload(size_t bytes) {
    static const char *words[] = {"order", "click", "\"price\":", "{\"id\":", "customer", "true,", "2026-", "amount"};
    char *out = malloc(bytes + 32);
    uint64_t seed = 88172645463325252ull;
    size_t at = 0;
    while (at < bytes) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        at += (size_t)sprintf(out + at, "%s%llu", words[seed % 8], (unsigned long long)(seed >> 40) % 1000);
    }
    return out;
}

static int produce(char **argv, long partitions) {
    long records = atol(argv[4]);
    size_t bytes = (size_t)atol(argv[5]);
    rd_kafka_t *rk = producer(argv[2], argv[6], argv[7], "5");
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, argv[3], NULL);
    char *pool = payload(POOL_BYTES + bytes);
    double start = now();
    for (long n = 0; n < records; n++) {
        while (rd_kafka_produce(topic, (int32_t)(n % partitions), RD_KAFKA_MSG_F_COPY, pool + n * bytes % POOL_BYTES, bytes,
                                NULL, 0, NULL)) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die(rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(rk, 10);
        }
        if (n % 1024 == 0) rd_kafka_poll(rk, 0);
    }
    rd_kafka_flush(rk, 120000);
    double took = now() - start;
    if (failed || delivered != records) die("records were not acknowledged");
    printf("{\"records\": %ld, \"bytes\": %zu, \"seconds\": %.6f}\n", records, records * bytes, took);
    return 0;
}

static int consume(char **argv) {
    long records = atol(argv[4]), got = 0;
    uint64_t bytes = 0;
    rd_kafka_t *rk = consumer(argv[2], "100");
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
    assign(rk, argv[3], RD_KAFKA_OFFSET_BEGINNING);
    rd_kafka_message_t *batch[4096];
    double start = now(), last = start;
    while (got < records) {
        ssize_t n = rd_kafka_consume_batch_queue(queue, 100, batch, 4096);
        if (n > 0) last = now();
        else if (now() - last > 30) die("nothing came for 30 seconds");
        for (ssize_t i = 0; i < n; i++) {
            if (!batch[i]->err) got++, bytes += batch[i]->len;
            rd_kafka_message_destroy(batch[i]);
        }
    }
    printf("{\"records\": %ld, \"bytes\": %llu, \"seconds\": %.6f}\n", got, (unsigned long long)bytes, now() - start);
    fflush(stdout);
    _Exit(0);
}

struct reader {
    rd_kafka_t *rk;
    long wanted, got;
    double *waited;
};

static void *read_all(void *argument) {
    struct reader *r = argument;
    double last = now();
    while (r->got < r->wanted) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(r->rk, 100);
        if (!message) {
            if (now() - last > 30) die("nothing came for 30 seconds");
            continue;
        }
        last = now();
        if (!message->err && message->len >= sizeof(double)) {
            double sent;
            memcpy(&sent, message->payload, sizeof sent);
            if (sent > 0) r->waited[r->got++] = (last - sent) * 1e6;
        }
        rd_kafka_message_destroy(message);
    }
    return NULL;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int latency(char **argv) {
    double rate = atof(argv[4]), seconds = atof(argv[5]);
    long records = (long)(rate * seconds), warm = (long)rate;
    rd_kafka_t *out = producer(argv[2], "none", argv[6], "0");
    rd_kafka_topic_t *topic = rd_kafka_topic_new(out, argv[3], NULL);
    char record[100] = {0};
    rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, record, sizeof record, NULL, 0, NULL); /* time 0: not counted */
    rd_kafka_flush(out, 30000);
    struct reader r = {consumer(argv[2], "500"), records + warm, 0, calloc((size_t)(records + warm), sizeof(double))};
    rd_kafka_poll_set_consumer(r.rk);
    assign(r.rk, argv[3], RD_KAFKA_OFFSET_BEGINNING);
    pthread_t thread;
    pthread_create(&thread, NULL, read_all, &r);
    double start = now();
    for (long n = 0; n < records + warm; n++) {
        double due = start + (double)n / rate, t = now();
        if (t < due) {
            struct timespec pause = {0, (long)((due - t) * 1e9)};
            nanosleep(&pause, NULL);
            t = now();
        }
        memcpy(record, &t, sizeof t);
        if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, record, sizeof record, NULL, 0, NULL)) die("produce");
        rd_kafka_poll(out, 0);
    }
    rd_kafka_flush(out, 30000);
    pthread_join(thread, NULL);
    if (failed) die("records were not acknowledged");
    qsort(r.waited + warm, (size_t)records, sizeof(double), by_value);
    printf("{\"records\": %ld, \"p50_us\": %.0f, \"p99_us\": %.0f}\n", records, r.waited[warm + records / 2],
           r.waited[warm + (long)(records * 0.99)]);
    fflush(stdout);
    _Exit(0);
}

int main(int argc, char **argv) {
    if ((argc == 8 || argc == 9) && !strcmp(argv[1], "produce")) return produce(argv, argc == 9 ? atol(argv[8]) : 1);
    if (argc == 5 && !strcmp(argv[1], "consume")) return consume(argv);
    if (argc == 7 && !strcmp(argv[1], "latency")) return latency(argv);
    fprintf(stderr, "usage: stream produce|consume|latency BROKERS TOPIC ...\n");
    return 2;
}
