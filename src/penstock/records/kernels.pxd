# What the compiled kernel takes from C; interpreted, the crc32c package stands in for it.
cdef extern from "crc32c.h" nogil:
    int penstock_crc32c_start()
    unsigned int penstock_crc32c(unsigned int crc, const unsigned char *data, size_t size)
    unsigned int penstock_crc32c_portable(unsigned int crc, const unsigned char *data, size_t size)

# What the other kernels share with this one.
ctypedef const unsigned char *Bytes

cdef unsigned int uint32_at(Bytes data, Py_ssize_t at) noexcept nogil
cdef int int32_at(Bytes data, Py_ssize_t at) noexcept nogil
cdef long long int64_at(Bytes data, Py_ssize_t at) noexcept nogil
cdef int int16_at(Bytes data, Py_ssize_t at) noexcept nogil
cdef Py_ssize_t check_batch(Bytes data, Py_ssize_t at, Py_ssize_t end, bint check_crc) noexcept nogil
cdef object batch_at(type batch_class, Bytes data, Py_ssize_t at)
