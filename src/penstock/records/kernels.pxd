# What the compiled kernel takes from C; interpreted, the crc32c package stands in for it.
cdef extern from "crc32c.h" nogil:
    int penstock_crc32c_start()
    unsigned int penstock_crc32c(unsigned int crc, const unsigned char *data, size_t size)
    unsigned int penstock_crc32c_portable(unsigned int crc, const unsigned char *data, size_t size)
