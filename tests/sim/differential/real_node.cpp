#include <sim/differential/real_node.hpp>

#include <algorithm>

namespace sim {

std::string hex16(std::uint64_t n) {
    return std::string(lockcore::nonce::from_bits(n, 0).str().substr(0, 16));
}

std::vector<lockcore::resource_name> make_names() {
    std::vector<lockcore::resource_name> out;
    const auto name = [](std::uint32_t i) { return *lockcore::resource_name::parse("d" + std::to_string(i)); };
    std::vector<std::pair<std::uint32_t, std::uint32_t>> seen;
    for (std::uint32_t i = 0; out.size() < 4; ++i) {
        const std::uint32_t bucket = name(i).bucket();
        const auto same = std::find_if(seen.begin(), seen.end(), [&](const auto& s) { return s.first == bucket; });
        if (same != seen.end()) {
            out.push_back(name(same->second));
            out.push_back(name(i));
        }
        seen.emplace_back(bucket, i);
    }
    out.push_back(*lockcore::resource_name::parse("alone"));
    return out;
}

std::string text(const redisReply* r) {
    return r && r->str ? std::string(r->str, r->len) : std::string();
}

bool is_close(milliseconds a, milliseconds b) {
    return a - b < clock_tolerance && b - a < clock_tolerance;
}

}  // namespace sim
