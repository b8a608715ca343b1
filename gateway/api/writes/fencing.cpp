#include <gateway/api/writes/fencing.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/text.hpp>
#include <gateway/runtime/text.hpp>

#include <algorithm>
#include <charconv>

namespace fencegate::api {
namespace {

void read_resource_header(std::string_view text, http::fault_list& faults, std::vector<lockcore::resource_name>& out) {
    while (true) {
        const auto comma = text.find(',');
        const auto decoded = runtime::percent_decode(http::trim(text.substr(0, comma)));
        if (!decoded) return faults.add("Fencing-Resource", "has a % without two hexadecimal digits; send %25");
        auto name = lockcore::resource_name::parse(*decoded);
        if (!name) return faults.add("Fencing-Resource", name.error().detail + "; several are separated by commas");
        out.push_back(std::move(*name));
        if (comma == std::string_view::npos) break;
        text.remove_prefix(comma + 1);
    }
    const auto before = [](const auto& a, const auto& b) { return a.str() < b.str(); };
    std::ranges::sort(out, before);
    const auto duplicate =
        std::ranges::adjacent_find(out, [](const auto& a, const auto& b) { return a.str() == b.str(); });
    if (out.size() > lockcore::resources_max || duplicate != out.end() ||
        lockcore::names_bytes(out) > lockcore::names_bytes_max) {
        faults.add("Fencing-Resource", "has to be 1 to " + std::to_string(lockcore::resources_max) +
                                           " different names of resources with at most " +
                                           std::to_string(lockcore::names_bytes_max) + " bytes together");
    }
}

result<lockcore::lease_claims> bare_claims(const http::request& r) {
    const auto granted = r.rights->require_for_some(scope::bare_tokens);
    if (!granted) return granted.error();
    lockcore::lease_claims out;
    out.holder.principal = r.principal;
    http::fault_list faults;
    read_resource_header(r.header("fencing-resource"), faults, out.resources);
    const auto text = http::trim(r.header("fencing-token"));
    std::uint64_t token = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token);
    if (error != std::errc{} || end != text.data() + text.size() || token < 1 || token > lockcore::fencing_token_max)
        faults.add("Fencing-Token", "has to be an integer from 1 to 9007199254740991");
    if (!faults.empty()) return std::move(faults).to_failure();
    out.token = lockcore::fencing_token{token};
    for (const scope needed : {scope::bare_tokens, scope::writes}) {
        const auto allowed = r.rights->require(needed, out.resources);
        if (!allowed) return allowed.error();
    }
    return out;
}

}  // namespace

bool has_fencing_headers(const http::request& r) {
    return r.has_header("fencing-lease") || r.has_header("fencing-resource") || r.has_header("fencing-token");
}

result<lockcore::lease_claims> open_lease_or_token(const lockcore::lock_manager& locks, std::string_view lease_id,
                                                   const http::request& r) {
    const bool bare = r.has_header("fencing-resource") || r.has_header("fencing-token");
    if (bare && !lease_id.empty()) {
        return invalid_field("Fencing-Token", "can't be sent together with a lease, which has a token of its own");
    }
    if (bare) return bare_claims(r);
    if (!lease_id.empty()) return open_lease(locks, lease_id, scope::writes, r);
    return make_failure(errc::fencing_required,
                        "No lease was sent: put its lease_id into the body of /v1/writes or into the header "
                        "Fencing-Lease.");
}

}  // namespace fencegate::api
