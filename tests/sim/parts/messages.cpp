#include <sim/parts/messages.hpp>

#include <array>
#include <charconv>

namespace sim {
namespace {

std::uint64_t parse_hex(std::string_view digits) {
    std::uint64_t n = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), n, 16);
    return n;
}

/// Names rR-S for each resource R and bucket B: all names of a column have the same counter.
constexpr std::uint32_t suffixes[sim_resources_max][sim_resources_max] = {{320, 321, 322, 323, 324},
                                                                          {8622, 8623, 8620, 8621, 8626},
                                                                          {121773, 121772, 26218, 26219, 121777},
                                                                          {66961, 66960, 66963, 66962, 66965},
                                                                          {58996, 58997, 58994, 58995, 58992}};

using name_table = std::vector<std::vector<lockcore::resource_name>>;

name_table make_names() {
    name_table out(sim_resources_max);
    for (std::uint32_t r = 0; r < sim_resources_max; ++r) {
        for (std::uint32_t b = 0; b < sim_resources_max; ++b) {
            const std::string text = "r" + std::to_string(r) + "-" + std::to_string(suffixes[r][b]);
            out[r].push_back(*lockcore::resource_name::parse(text));
            if (out[r][b].bucket() != out[0][b].bucket()) throw std::logic_error(text + " has another counter");
        }
    }
    return out;
}

}  // namespace

sim_nonce to_number(const lockcore::nonce& attempt) {
    return parse_hex(attempt.str().substr(16));
}

sim_nonce nonce_of_lease(std::string_view lease) {
    const bool has_nonce = lease.size() > lockcore::nonce::size && lease[lockcore::nonce::size] == ' ';
    return has_nonce ? parse_hex(lease.substr(16, 16)) : 0;
}

const lockcore::resource_name& name_of(const options& o, std::uint32_t resource) {
    static const name_table names = make_names();
    return names[resource][o.bucket_of[resource]];
}

std::vector<lockcore::resource_name> names_of(const options& o, resource_set set) {
    std::vector<lockcore::resource_name> out;
    for_each_resource(set & ((1U << shared_bits) - 1), [&](std::uint32_t r) { out.push_back(name_of(o, r)); });
    return out;
}

std::uint32_t resource_of(std::string_view name) {
    return static_cast<std::uint32_t>(name[1] - '0');
}

resource_set set_of(const std::vector<lockcore::resource_name>& names) {
    resource_set out = 0;
    for (const auto& name : names)
        out |= static_cast<resource_set>(1U << resource_of(name.str()));
    return out;
}

resource_set set_of(const lockcore::lease_call& call) {
    resource_set out = 0;
    for (std::size_t i = 0; i < call.resources.size(); ++i) {
        const bool shares = i + call.shared >= call.resources.size();
        out |= static_cast<resource_set>(1U << (resource_of(call.resources[i].str()) + (shares ? shared_bits : 0)));
    }
    return out;
}

}  // namespace sim
