#include <gateway/config/limits_reader.hpp>

namespace fencegate {
namespace {

using namespace config_reader;

constexpr std::int64_t count_max = 1'000'000;
constexpr std::int64_t burst_max = 10'000'000;
constexpr std::size_t principals_max = 10'000;

std::vector<field> rate_fields(request_rate& target) {
    return {{"requests_per_second", integer(target.per_second, 0, count_max)},
            {"requests_burst", integer(target.burst, 0, burst_max)}};
}

void check_rate(const request_rate& rate, const std::string& path, fault_list& faults) {
    if (rate.burst > 0 && rate.per_second == 0 && !faults.covers(path))
        faults.add(path + ".requests_burst", "has no effect while requests_per_second is 0");
}

std::vector<field> principal_fields(principal_limits& target) {
    auto out = rate_fields(target.requests);
    out.push_back({"leases_max", integer(target.leases_max, 0, count_max)});
    out.push_back({"waiters_max", integer(target.waiters_max, 0, count_max)});
    out.push_back({"streams_max", integer(target.streams_max, 0, count_max)});
    return out;
}

void read_principal(const YAML::Node& node, const std::string& path, fault_list& faults, limits_config& target) {
    std::string name;
    principal_limits limits = target.principal;
    auto fields = principal_fields(limits);
    fields.push_back({"principal", text(name), true});
    mapping(std::move(fields))(node, path, faults);
    // The burst that an entry takes from `principal` is no fault of the entry.
    if (node.IsMap() && node["requests_burst"]) check_rate(limits.requests, path, faults);
    if (name.empty()) return;
    if (!target.principals.emplace(name, limits).second)
        faults.add(path + ".principal", "an earlier entry has the limits of this principal");
}

}  // namespace

read_value limits_section(limits_config& target) {
    return {target, [&target](const YAML::Node& node, const std::string& path, fault_list& faults) {
                YAML::Node principals;
                const auto keep_principals = [&principals](const YAML::Node& entries, const std::string&, fault_list&) {
                    principals.reset(entries);
                };
                auto address = rate_fields(target.address.requests);
                address.push_back({"failed_authentications_per_minute",
                                   integer(target.address.failed_authentications_per_minute, 0, count_max)});
                mapping({
                    {"address", mapping(std::move(address))},
                    {"principal", mapping(principal_fields(target.principal))},
                    {"principals", keep_principals},
                })(node, path, faults);
                check_rate(target.address.requests, path + ".address", faults);
                check_rate(target.principal.requests, path + ".principal", faults);
                // After `principal`, wherever the file has that, because an entry inherits the keys that it lacks.
                list([&target](std::size_t i, const YAML::Node& entry, const std::string& entry_path, fault_list& all) {
                    if (i == principals_max) all.add("limits.principals", "has more than 10,000 entries");
                    if (i < principals_max) read_principal(entry, entry_path, all, target);
                })(principals, path + ".principals", faults);
            }};
}

}  // namespace fencegate
