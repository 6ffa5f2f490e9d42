/*
 * Measures the ceiling without Python: consumes, and produces in transactions, with the librdkafka that confluent-kafka
 * has loaded.
 *
 * Its wheel has no header files, so this file declares the functions that it calls. All of them are public, and have
 * stayed the same since librdkafka 1.6. c_loop.py compiles this file when the benchmark runs, and the loaded library
 * provides the functions.
 */

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;

typedef struct {
        int err;
        rd_kafka_topic_t *rkt;
        int32_t partition;
        void *payload;
        size_t len;
        void *key;
        size_t key_len;
        int64_t offset;
        void *private;
} rd_kafka_message_t;

enum { PRODUCER = 0, CONSUMER = 1 };
enum { V_END = 0, V_RKT = 2, V_PARTITION = 3, V_VALUE = 4, V_KEY = 5, V_MSGFLAGS = 7, V_HEADERS = 10 };
enum { COPY_VALUE = 2 };
enum { CONF_OK = 0 };

extern rd_kafka_conf_t *rd_kafka_conf_new(void);
extern int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
extern rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
extern void rd_kafka_destroy(rd_kafka_t *);
extern int rd_kafka_poll(rd_kafka_t *, int);
extern rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, rd_kafka_topic_conf_t *);
extern void rd_kafka_topic_destroy(rd_kafka_topic_t *);
extern rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int);
extern void *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *, int32_t);
extern int rd_kafka_topic_partition_list_set_offset(rd_kafka_topic_partition_list_t *, const char *, int32_t, int64_t);
extern void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *);
extern int rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
extern int rd_kafka_poll_set_consumer(rd_kafka_t *);
extern rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
extern void rd_kafka_queue_destroy(rd_kafka_queue_t *);
extern ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
extern void rd_kafka_message_destroy(rd_kafka_message_t *);
extern int64_t rd_kafka_message_timestamp(const rd_kafka_message_t *, int *);
extern int rd_kafka_message_detach_headers(rd_kafka_message_t *, rd_kafka_headers_t **);
extern rd_kafka_headers_t *rd_kafka_headers_new(size_t);
extern int rd_kafka_header_add(rd_kafka_headers_t *, const char *, ssize_t, const void *, ssize_t);
extern void rd_kafka_headers_destroy(rd_kafka_headers_t *);
extern int rd_kafka_producev(rd_kafka_t *, ...);
extern const char *rd_kafka_err2str(int);
extern rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *, int);
extern rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *);
extern rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *, int);
extern const char *rd_kafka_error_string(const rd_kafka_error_t *);
extern void rd_kafka_error_destroy(rd_kafka_error_t *);
extern int rd_kafka_consumer_close(rd_kafka_t *);

enum { MOST_AT_ONCE = 10000, ERROR_BYTES = 512, TIMEOUT_MS = 60000, READ_MS = 100 };

static char why[2 * ERROR_BYTES];

/* Return the reason why the last call has failed. */
const char *copy_loop_error(void) {
        return why;
}

static int failed(const char *what, const char *text) {
        snprintf(why, sizeof why, "%s: %s", what, text);
        return -1;
}

static int ended_badly(const char *what, rd_kafka_error_t *error) {
        if (!error)
                return 0;
        failed(what, rd_kafka_error_string(error));
        rd_kafka_error_destroy(error);
        return -1;
}

/* Return a client with these settings: names and values in turn, up to NULL. */
static rd_kafka_t *client(int kind, const char *const *settings) {
        char text[ERROR_BYTES];
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        for (; *settings; settings += 2)
                if (rd_kafka_conf_set(conf, settings[0], settings[1], text, sizeof text) != CONF_OK)
                        return failed(settings[0], text), NULL;
        rd_kafka_t *made = rd_kafka_new(kind, conf, text, sizeof text);
        if (!made)
                failed("client", text);
        return made;
}

/* Return the headers that the router gives a record without headers. */
static rd_kafka_headers_t *released_headers(const rd_kafka_message_t *message) {
        char timestamp[24], source[48];
        int timestamp_type;
        long long timestamp_ms = rd_kafka_message_timestamp(message, &timestamp_type);
        int length = snprintf(timestamp, sizeof timestamp, "%lld", timestamp_ms);
        int source_length = snprintf(source, sizeof source, "bench-source/0/%lld", (long long)message->offset);
        rd_kafka_headers_t *made = rd_kafka_headers_new(3);
        rd_kafka_header_add(made, "delay-due", -1, timestamp, length);
        rd_kafka_header_add(made, "delay-source", -1, source, source_length);
        rd_kafka_header_add(made, "delay-source-timestamp", -1, timestamp, length);
        return made;
}

static int produce(rd_kafka_t *producer, rd_kafka_topic_t *target, rd_kafka_message_t *message, int as_released) {
        rd_kafka_headers_t *headers = NULL;
        if (as_released)
                headers = released_headers(message);
        else if (rd_kafka_message_detach_headers(message, &headers))
                headers = rd_kafka_headers_new(0);
        int error = rd_kafka_producev(producer, V_RKT, target, V_PARTITION, (int32_t)0, V_MSGFLAGS, COPY_VALUE,
                                      V_VALUE, message->payload, message->len, V_KEY, message->key, message->key_len,
                                      V_HEADERS, headers, V_END);
        if (!error)
                return 0;
        rd_kafka_headers_destroy(headers);
        return failed("produce", rd_kafka_err2str(error));
}

/* Read some records and write them on. Return their number, or -1. */
static long copy_some(rd_kafka_queue_t *queue, rd_kafka_t *producer, rd_kafka_topic_t *target, long most, int as_released) {
        static rd_kafka_message_t *messages[MOST_AT_ONCE];
        ssize_t count = rd_kafka_consume_batch_queue(queue, READ_MS, messages, most < MOST_AT_ONCE ? most : MOST_AT_ONCE);
        long result = count;
        for (ssize_t each = 0; each < count; each++) {
                if (result >= 0 && messages[each]->err)
                        result = failed("consume", rd_kafka_err2str(messages[each]->err));
                else if (result >= 0 && produce(producer, target, messages[each], as_released))
                        result = -1;
                rd_kafka_message_destroy(messages[each]);
        }
        rd_kafka_poll(producer, 0);
        return count < 0 ? failed("consume", "no batch") : result;
}

static double now_s(void) {
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        return at.tv_sec + at.tv_nsec / 1e9;
}

/* Return the rate in records/s after the first transaction, or -1; copy_loop_error then has the reason. */
static double copy(rd_kafka_queue_t *queue, rd_kafka_t *producer, rd_kafka_topic_t *target, long count,
                   long transaction_records, long chunk, int as_released) {
        long done = 0, timed_from = 0;
        double started_s = 0;
        if (ended_badly("init_transactions", rd_kafka_init_transactions(producer, TIMEOUT_MS)))
                return -1;
        while (done < count) {
                if (ended_badly("begin_transaction", rd_kafka_begin_transaction(producer)))
                        return -1;
                long end = done + transaction_records < count ? done + transaction_records : count;
                while (done < end) {
                        long copied = copy_some(queue, producer, target, end - done < chunk ? end - done : chunk, as_released);
                        if (copied < 0)
                                return -1;
                        done += copied;
                }
                if (ended_badly("commit_transaction", rd_kafka_commit_transaction(producer, TIMEOUT_MS)))
                        return -1;
                if (!timed_from) {
                        timed_from = done;
                        started_s = now_s();
                }
        }
        return (done - timed_from) / (now_s() - started_s);
}

double copy_loop(const char *const *consumer_settings, const char *const *producer_settings, const char *source,
                 const char *target, long count, long transaction_records, long chunk, int as_released) {
        rd_kafka_t *consumer = client(CONSUMER, consumer_settings);
        if (!consumer)
                return -1;
        rd_kafka_t *producer = client(PRODUCER, producer_settings);
        if (!producer)
                return -1;
        rd_kafka_poll_set_consumer(consumer);
        rd_kafka_topic_partition_list_t *partitions = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(partitions, source, 0);
        rd_kafka_topic_partition_list_set_offset(partitions, source, 0, 0);
        rd_kafka_assign(consumer, partitions);
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(consumer);
        rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, target, NULL);
        double rate = copy(queue, producer, topic, count, transaction_records, chunk, as_released);
        rd_kafka_topic_destroy(topic);
        rd_kafka_queue_destroy(queue);
        rd_kafka_consumer_close(consumer);
        rd_kafka_destroy(consumer);
        rd_kafka_destroy(producer);
        return rate;
}
