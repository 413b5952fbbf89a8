/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), callable without the GIL.
 *
 * penstock_crc32c_start() fills the tables; the kernel calls it once while it is imported.
 * penstock_crc32c(crc, data, size) continues a finished CRC (0 to begin), like zlib's crc32.
 *
 * Three ways, chosen once: x86-64 with SSE4.2 (checked when the program runs), ARMv8 with its CRC
 * instructions (known when it is compiled), and tables of 8 x 256 words for everything else.
 * The instruction takes 3 cycles but one can start every cycle, so long inputs are cut into three
 * lanes and the lanes joined: moving a CRC past n zero bytes is linear over its 32 bits, hence four table look-ups.
 */
#ifndef PENSTOCK_CRC32C_H
#define PENSTOCK_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PENSTOCK_CRC_LONG 4096  /* bytes a lane, long inputs */
#define PENSTOCK_CRC_SHORT 256  /* bytes a lane, what is left of them */

static uint32_t penstock_crc_bytes[8][256];  /* [k][b]: byte b followed by k zero bytes */
static uint32_t penstock_crc_long[4][256];   /* [k][b]: (b << 8k) moved past PENSTOCK_CRC_LONG zero bytes */
static uint32_t penstock_crc_short[4][256];

static uint32_t penstock_crc32c_tables(uint32_t crc, const unsigned char *data, size_t size) {
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = penstock_crc_bytes[7][low & 255] ^ penstock_crc_bytes[6][low >> 8 & 255]
            ^ penstock_crc_bytes[5][low >> 16 & 255] ^ penstock_crc_bytes[4][low >> 24]
            ^ penstock_crc_bytes[3][data[4]] ^ penstock_crc_bytes[2][data[5]]
            ^ penstock_crc_bytes[1][data[6]] ^ penstock_crc_bytes[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size--)
        crc = penstock_crc_bytes[0][(crc ^ *data++) & 255] ^ crc >> 8;
    return crc;
}

static void penstock_crc_shift_table(uint32_t table[4][256], size_t zero_bytes) {
    uint32_t bit[32];
    for (int i = 0; i < 32; i++) {
        uint32_t crc = (uint32_t)1 << i;
        for (size_t n = 0; n < zero_bytes; n++)
            crc = penstock_crc_bytes[0][crc & 255] ^ crc >> 8;
        bit[i] = crc;
    }
    for (int k = 0; k < 4; k++)
        for (int b = 0; b < 256; b++) {
            uint32_t crc = 0;
            for (int i = 0; i < 8; i++)
                if (b >> i & 1)
                    crc ^= bit[8 * k + i];
            table[k][b] = crc;
        }
}

static inline uint32_t penstock_crc_shift(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24];
}

static inline uint64_t penstock_crc_word(const unsigned char *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
#define PENSTOCK_CRC_HARDWARE 1
#define PENSTOCK_CRC_TARGET __attribute__((target("sse4.2")))
#define PENSTOCK_CRC_STEP8(crc, word) _mm_crc32_u64((crc), (word))
#define PENSTOCK_CRC_STEP1(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
static int penstock_crc_has_hardware(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && !defined(__AARCH64EB__)
#include <arm_acle.h>
#define PENSTOCK_CRC_HARDWARE 1
#define PENSTOCK_CRC_TARGET
#define PENSTOCK_CRC_STEP8(crc, word) __crc32cd((uint32_t)(crc), (word))
#define PENSTOCK_CRC_STEP1(crc, byte) __crc32cb((uint32_t)(crc), (byte))
static int penstock_crc_has_hardware(void) { return 1; }
#else
#define PENSTOCK_CRC_HARDWARE 0
#endif

#if PENSTOCK_CRC_HARDWARE
PENSTOCK_CRC_TARGET
static uint32_t penstock_crc32c_hardware(uint32_t start, const unsigned char *data, size_t size) {
    uint64_t crc = start;
    while (size && ((uintptr_t)data & 7)) {
        crc = PENSTOCK_CRC_STEP1(crc, *data++);
        size--;
    }
    for (int pass = 0; pass < 2; pass++) {
        const size_t lane = pass == 0 ? PENSTOCK_CRC_LONG : PENSTOCK_CRC_SHORT;
        while (size >= 3 * lane) {
            const unsigned char *end = data + lane;
            uint64_t second = 0, third = 0;
            do {
                crc = PENSTOCK_CRC_STEP8(crc, penstock_crc_word(data));
                second = PENSTOCK_CRC_STEP8(second, penstock_crc_word(data + lane));
                third = PENSTOCK_CRC_STEP8(third, penstock_crc_word(data + 2 * lane));
                data += 8;
            } while (data < end);
            if (pass == 0) {
                crc = penstock_crc_shift(penstock_crc_long, (uint32_t)crc) ^ second;
                crc = penstock_crc_shift(penstock_crc_long, (uint32_t)crc) ^ third;
            } else {
                crc = penstock_crc_shift(penstock_crc_short, (uint32_t)crc) ^ second;
                crc = penstock_crc_shift(penstock_crc_short, (uint32_t)crc) ^ third;
            }
            data += 2 * lane;
            size -= 3 * lane;
        }
    }
    for (; size >= 8; data += 8, size -= 8)
        crc = PENSTOCK_CRC_STEP8(crc, penstock_crc_word(data));
    while (size--)
        crc = PENSTOCK_CRC_STEP1(crc, *data++);
    return (uint32_t)crc;
}
#endif

static int penstock_crc_hardware = 0;

static inline int penstock_crc32c_start(void) {
    for (int b = 0; b < 256; b++) {
        uint32_t crc = (uint32_t)b;
        for (int i = 0; i < 8; i++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        penstock_crc_bytes[0][b] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++) {
            uint32_t crc = penstock_crc_bytes[k - 1][b];
            penstock_crc_bytes[k][b] = penstock_crc_bytes[0][crc & 255] ^ crc >> 8;
        }
    penstock_crc_shift_table(penstock_crc_long, PENSTOCK_CRC_LONG);
    penstock_crc_shift_table(penstock_crc_short, PENSTOCK_CRC_SHORT);
#if PENSTOCK_CRC_HARDWARE
    penstock_crc_hardware = penstock_crc_has_hardware();
#endif
    return penstock_crc_hardware;
}

static inline uint32_t penstock_crc32c(uint32_t crc, const unsigned char *data, size_t size) {
#if PENSTOCK_CRC_HARDWARE
    if (penstock_crc_hardware)
        return ~penstock_crc32c_hardware(~crc, data, size);
#endif
    return ~penstock_crc32c_tables(~crc, data, size);
}

/* The table way whatever the machine can do, so that tests reach it. */
static inline uint32_t penstock_crc32c_portable(uint32_t crc, const unsigned char *data, size_t size) {
    return ~penstock_crc32c_tables(~crc, data, size);
}

#endif
