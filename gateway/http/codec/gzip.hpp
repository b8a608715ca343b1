#pragma once

#include <zlib.h>

#include <array>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fencegate::http {

/// Compresses one text in the format of gzip (RFC 1952), piece by piece.
class gzip_encoder {
  public:
    /// The memory that an encoder takes (zconf.h), with a margin.
    static constexpr std::size_t memory_bytes = 300 * 1024;

    /// Throws std::bad_alloc.
    gzip_encoder() {
        // The fastest level: an I/O thread compresses, and JSON shrinks by most of what a slower level reaches.
        if (deflateInit2(&stream_, Z_BEST_SPEED, Z_DEFLATED, window_bits, memory_level, Z_DEFAULT_STRATEGY) != Z_OK)
            throw std::bad_alloc();
    }
    ~gzip_encoder() { deflateEnd(&stream_); }
    gzip_encoder(const gzip_encoder&) = delete;
    gzip_encoder& operator=(const gzip_encoder&) = delete;

    /// Returns the most bytes that a text of this size takes when it is compressed.
    static std::size_t bound(std::size_t bytes) { return compressBound(static_cast<uLong>(bytes)) + header_bytes; }

    /// Appends the compressed piece to `out`.
    void add(std::string_view piece, std::string& out) { compress(piece, Z_NO_FLUSH, out); }
    /// As add(); the text ends with this piece.
    void add_last(std::string_view piece, std::string& out) { compress(piece, Z_FINISH, out); }

  private:
    void compress(std::string_view piece, int flush, std::string& out) {
        std::array<unsigned char, output_bytes> buffer;
        // zlib reads only; its older interface has no const.
        stream_.next_in = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(piece.data()));
        stream_.avail_in = static_cast<uInt>(piece.size());
        do {
            stream_.next_out = buffer.data();
            stream_.avail_out = static_cast<uInt>(buffer.size());
            const int result = deflate(&stream_, flush);
            if (result == Z_STREAM_ERROR) throw std::logic_error("the state of zlib is broken");
            out.append(reinterpret_cast<const char*>(buffer.data()), buffer.size() - stream_.avail_out);
        } while (stream_.avail_out == 0);
    }

    static constexpr int window_bits = 15 + 16;  ///< 16: the header and trailer of gzip.
    static constexpr int memory_level = 8;
    static constexpr std::size_t header_bytes = 18;  ///< Of gzip; compressBound allows for the fewer ones of zlib.
    static constexpr std::size_t output_bytes = 16 * 1024;

    z_stream stream_{};
};

}  // namespace fencegate::http
