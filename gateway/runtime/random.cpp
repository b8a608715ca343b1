#include <gateway/runtime/random.hpp>

#include <openssl/rand.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace fencegate::runtime {
namespace {

constexpr char hex_digits[] = "0123456789abcdef";

/// A block of random bytes that is handed out from front to back.
struct block {
    std::array<std::byte, 1024> bytes;
    std::size_t used = sizeof(bytes);
};

void append_hex(std::string& out, std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) {
        const auto value = static_cast<unsigned>(b);
        out += hex_digits[value >> 4U];
        out += hex_digits[value & 15U];
    }
}

}  // namespace

void random_bytes(std::span<std::byte> out) {
    thread_local block pool;
    while (!out.empty()) {
        if (pool.used == pool.bytes.size()) {
            if (RAND_bytes(reinterpret_cast<unsigned char*>(pool.bytes.data()), static_cast<int>(pool.bytes.size())) !=
                1) {
                std::abort();
            }
            pool.used = 0;
        }
        const std::size_t count = std::min(out.size(), pool.bytes.size() - pool.used);
        std::memcpy(out.data(), pool.bytes.data() + pool.used, count);
        pool.used += count;
        out = out.subspan(count);
    }
}

std::string random_hex128() {
    std::array<std::byte, 16> bits;
    random_bytes(bits);
    std::string out;
    out.reserve(2 * bits.size());
    append_hex(out, bits);
    return out;
}

std::string uuid_v7() {
    std::array<std::byte, 16> bits;
    random_bytes(bits);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto ms = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
    for (std::size_t i = 0; i < 6; ++i)
        bits[i] = static_cast<std::byte>((ms >> (40 - 8 * i)) & 0xffU);
    bits[6] = (bits[6] & std::byte{0x0f}) | std::byte{0x70};
    bits[8] = (bits[8] & std::byte{0x3f}) | std::byte{0x80};

    std::string out;
    out.reserve(36);
    const std::span<const std::byte> all(bits);
    append_hex(out, all.subspan(0, 4));
    for (const std::size_t at : {4U, 6U, 8U}) {
        out += '-';
        append_hex(out, all.subspan(at, 2));
    }
    out += '-';
    append_hex(out, all.subspan(10, 6));
    return out;
}

}  // namespace fencegate::runtime
