#include "fuzz.hpp"

#include <cstddef>
#include <cstdint>

/// What libFuzzer calls for each input.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fencegate::fuzz::run_input({reinterpret_cast<const char*>(data), size});
    return 0;
}
