#include <gateway/http/codec/gzip.hpp>

#include <array>
#include <new>
#include <stdexcept>

namespace fencegate::http {
namespace {

constexpr int gzip_window_bits = 15 + 16;  // 16: the header and trailer of gzip
constexpr int memory_level = 8;
constexpr std::size_t header_bytes = 18;  // more than those that compressBound allows for
constexpr std::size_t output_bytes = 16 * 1024;

}  // namespace

gzip_encoder::gzip_encoder() {
    // The fastest level: an I/O thread compresses, and JSON shrinks by most of what a slower level reaches.
    if (deflateInit2(&stream_, Z_BEST_SPEED, Z_DEFLATED, gzip_window_bits, memory_level, Z_DEFAULT_STRATEGY) != Z_OK)
        throw std::bad_alloc();
}

gzip_encoder::~gzip_encoder() {
    deflateEnd(&stream_);
}

std::size_t gzip_encoder::bound(std::size_t bytes) {
    return compressBound(static_cast<uLong>(bytes)) + header_bytes;
}

void gzip_encoder::add(std::string_view piece, bool last, std::string& out) {
    std::array<unsigned char, output_bytes> buffer;
    // zlib reads only; its older interface has no const.
    stream_.next_in = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(piece.data()));
    stream_.avail_in = static_cast<uInt>(piece.size());
    do {
        stream_.next_out = buffer.data();
        stream_.avail_out = static_cast<uInt>(buffer.size());
        const int result = deflate(&stream_, last ? Z_FINISH : Z_NO_FLUSH);
        if (result == Z_STREAM_ERROR) throw std::logic_error("the state of zlib is broken");
        out.append(reinterpret_cast<const char*>(buffer.data()), buffer.size() - stream_.avail_out);
    } while (stream_.avail_out == 0);
}

}  // namespace fencegate::http
