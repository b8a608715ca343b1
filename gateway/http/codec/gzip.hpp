#pragma once

#include <zlib.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::http {

/// Compresses one text in the format of gzip (RFC 1952), piece by piece.
class gzip_encoder {
  public:
    /// The memory that an encoder takes (zconf.h), with a margin.
    static constexpr std::size_t memory_bytes = 300 * 1024;

    /// Throws std::bad_alloc.
    gzip_encoder();
    ~gzip_encoder();
    gzip_encoder(const gzip_encoder&) = delete;
    gzip_encoder& operator=(const gzip_encoder&) = delete;

    /// Returns the most bytes that a text of this size takes when it is compressed.
    static std::size_t bound(std::size_t bytes);

    /// Appends the compressed piece to `out`; `last`: the text ends with it.
    void add(std::string_view piece, bool last, std::string& out);

  private:
    z_stream stream_{};
};

}  // namespace fencegate::http
