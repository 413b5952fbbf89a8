/* Sends one prepared request over and over on many connections, each waiting for its answer (or several in flight).
 *
 *   requests HOST PORT CONNECTIONS IN_FLIGHT SECONDS REQUEST_FILE
 *
 * REQUEST_FILE holds one whole frame, length included; it is sent as it is. One thread, epoll, loopback only. Prints one
 * line of JSON: requests, seconds, bytes in and out, and the latencies' quantiles in microseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define IN_FLIGHT_MAX 64
#define BUCKETS 2000000 /* one microsecond each */

struct connection {
    int fd;
    size_t to_send;          /* bytes of requests not yet sent */
    unsigned char head[4];   /* an answer's length as it comes */
    size_t head_got;
    size_t body_left;
    double sent_at[IN_FLIGHT_MAX];
    unsigned first, count;
};

static unsigned char *frame;
static size_t frame_bytes;
static uint32_t *histogram;
static char buffer[1 << 20];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    fprintf(stderr, "requests: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void push(int epoll, struct connection *c) {
    while (c->to_send) {
        size_t offset = (frame_bytes - c->to_send % frame_bytes) % frame_bytes;
        ssize_t sent = send(c->fd, frame + offset, frame_bytes - offset, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            if (errno != EAGAIN) fail("send");
            struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
            epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
            return;
        }
        c->to_send -= (size_t)sent;
    }
}

static void ask(int epoll, struct connection *c, double t) {
    c->sent_at[(c->first + c->count++) % IN_FLIGHT_MAX] = t;
    c->to_send += frame_bytes;
    push(epoll, c);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: requests HOST PORT CONNECTIONS IN_FLIGHT SECONDS REQUEST_FILE\n");
        return 2;
    }
    int connections = atoi(argv[3]), in_flight = atoi(argv[4]);
    double seconds = atof(argv[5]);
    if (connections < 1 || in_flight < 1 || in_flight > IN_FLIGHT_MAX || seconds <= 0 || seconds > 120) {
        fprintf(stderr, "requests: a bound is passed\n");
        return 2;
    }
    FILE *file = fopen(argv[6], "rb");
    if (!file) fail(argv[6]);
    fseek(file, 0, SEEK_END);
    frame_bytes = (size_t)ftell(file);
    rewind(file);
    frame = malloc(frame_bytes);
    if (fread(frame, 1, frame_bytes, file) != frame_bytes) fail(argv[6]);
    fclose(file);
    histogram = calloc(BUCKETS + 1, sizeof *histogram);

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1 || (ntohl(address.sin_addr.s_addr) >> 24) != 127) {
        fprintf(stderr, "requests: only loopback addresses\n");
        return 2;
    }
    int epoll = epoll_create1(0);
    struct connection *all = calloc((size_t)connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        struct connection *c = &all[i];
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
        int one = 1;
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
    }
    double start = now(), end = start + seconds, t = start;
    uint64_t done = 0, bytes_in = 0, outstanding = 0;
    for (int i = 0; i < connections; i++)
        for (int n = 0; n < in_flight; n++) {
            ask(epoll, &all[i], t);
            outstanding++;
        }
    struct epoll_event events[256];
    while (outstanding) {
        int ready = epoll_wait(epoll, events, 256, 30000);
        if (ready <= 0) fail("no answer within 30 seconds");
        t = now();
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) {
                struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
                epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
                push(epoll, c);
            }
            if (!(events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) continue;
            ssize_t got = recv(c->fd, buffer, sizeof buffer, MSG_DONTWAIT);
            if (got < 0 && errno == EAGAIN) continue;
            if (got <= 0) fail("the broker closed a connection");
            bytes_in += (uint64_t)got;
            char *p = buffer;
            while (got) {
                if (c->head_got < 4) {
                    size_t take = 4 - c->head_got < (size_t)got ? 4 - c->head_got : (size_t)got;
                    memcpy(c->head + c->head_got, p, take);
                    c->head_got += take, p += take, got -= (ssize_t)take;
                    if (c->head_got < 4) break;
                    c->body_left = (size_t)c->head[0] << 24 | c->head[1] << 16 | c->head[2] << 8 | c->head[3];
                }
                size_t take = c->body_left < (size_t)got ? c->body_left : (size_t)got;
                c->body_left -= take, p += take, got -= (ssize_t)take;
                if (c->body_left) break;
                c->head_got = 0;
                double waited = (t - c->sent_at[c->first]) * 1e6;
                c->first = (c->first + 1) % IN_FLIGHT_MAX, c->count--, done++, outstanding--;
                histogram[waited < BUCKETS ? (size_t)waited : BUCKETS]++;
                if (t < end) {
                    ask(epoll, c, t);
                    outstanding++;
                }
            }
        }
    }
    double took = now() - start;
    double quantiles[] = {0.5, 0.99, 0.999};
    double found[3] = {0, 0, 0};
    for (int q = 0; q < 3; q++) {
        uint64_t seen = 0;
        for (size_t b = 0; b <= BUCKETS; b++) {
            seen += histogram[b];
            if (seen > quantiles[q] * done) {
                found[q] = (double)b;
                break;
            }
        }
    }
    printf("{\"requests\": %llu, \"seconds\": %.6f, \"bytes_out\": %llu, \"bytes_in\": %llu, "
           "\"p50_us\": %.0f, \"p99_us\": %.0f, \"p999_us\": %.0f}\n",
           (unsigned long long)done, took, (unsigned long long)(done * frame_bytes), (unsigned long long)bytes_in,
           found[0], found[1], found[2]);
    return 0;
}
