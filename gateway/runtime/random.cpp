#include <gateway/runtime/random.hpp>

#include <lockcore/encoding.hpp>

#include <openssl/rand.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace fencegate::runtime {
namespace {

/// A block of random bytes, used from front to back.
struct block {
    std::array<std::byte, 1024> bytes;
    std::size_t used = sizeof(bytes);
};

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
    return lockcore::to_hex(bits);
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

    std::string out = lockcore::to_hex(bits);
    for (const std::size_t at : {8U, 13U, 18U, 23U})
        out.insert(at, 1, '-');
    return out;
}

}  // namespace fencegate::runtime
