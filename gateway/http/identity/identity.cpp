#include <gateway/http/identity/identity.hpp>

#include <boost/json/serialize.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::http {
namespace {

/// Returns the refusal for a missing scope; `extent` says for which resources.
failure lacks(scope needed, const std::string& extent) {
    return make_failure(errc::forbidden,
                        "The caller lacks the scope '" + std::string(to_string(needed)) + "'" + extent + ".");
}

/// Returns " for DESCRIPTION TEXT"; empty if no resource's name begins with the text, which the caller chose.
std::string for_name(std::string_view description, std::string_view text) {
    if (!lockcore::resource_name::is_prefix(text)) return {};
    return " for " + std::string(description) + " " + std::string(text);
}

}  // namespace

std::string_view to_string(scope s) {
    switch (s) {
        case scope::leases:
            return "leases";
        case scope::writes:
            return "writes";
        case scope::history:
            return "history";
        case scope::operate:
            return "operate";
        case scope::bare_tokens:
            return "bare_tokens";
    }
    return "unknown";
}

scope_set scope_set::all() {
    return scope_set({scope::leases, scope::writes, scope::history, scope::operate, scope::bare_tokens});
}

rights::rights(const rights_config& given, time_point valid_until, std::string claims)
    : scopes_(given.scopes), exposed_(given.exposed), valid_until_(valid_until) {
    if (!given.database_role.empty())
        database_ =
            std::make_shared<const database_identity>(database_identity{given.database_role, std::move(claims)});
    prefixes_.reserve(given.prefixes.size());
    for (const auto& entry : given.prefixes)
        prefixes_.push_back({entry.resource_prefix, scope_set(entry.scopes)});
    std::ranges::stable_sort(prefixes_, std::ranges::greater(), [](const prefix& p) { return p.text.size(); });
}

rights rights::all() {
    rights out;
    out.scopes_ = scope_set::all();
    out.exposed_.reset();
    return out;
}

scope_set rights::scopes_of(std::string_view resource) const {
    const auto longest = std::ranges::find_if(prefixes_, [&](const prefix& p) { return resource.starts_with(p.text); });
    return longest == prefixes_.end() ? scopes_ : longest->scopes;
}

result<void> rights::require_for_some(scope needed) const {
    const bool granted =
        scopes_.has(needed) || std::ranges::any_of(prefixes_, [&](const prefix& p) { return p.scopes.has(needed); });
    if (!granted) return lacks(needed, {});
    return {};
}

result<void> rights::require(scope needed, std::string_view resource) const {
    if (!scopes_of(resource).has(needed)) return lacks(needed, for_name("the resource", resource));
    return {};
}

result<void> rights::require(scope needed, std::span<const lockcore::resource_name> resources) const {
    for (const auto& resource : resources) {
        const auto allowed = require(needed, resource.str());
        if (!allowed) return allowed.error();
    }
    return {};
}

result<void> rights::require_for_prefix(scope needed, std::string_view resource_prefix) const {
    constexpr std::string_view description = "the resources whose names begin with";
    if (!scopes_of(resource_prefix).has(needed))
        return lacks(needed, resource_prefix.empty() ? "" : for_name(description, resource_prefix));
    for (const prefix& longer : prefixes_) {
        if (longer.text.starts_with(resource_prefix) && !longer.scopes.has(needed))
            return lacks(needed, for_name(description, longer.text));
    }
    return {};
}

result<void> rights::require_exposed(std::string_view name) const {
    if (!exposed_ || exposed_->contains(name)) return {};
    const bool shown =
        name.size() <= exposed_name_bytes_max && std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; });
    return make_failure(errc::forbidden, "The caller may not use the table or function " +
                                             (shown ? std::string(name) : "of this name") + ".");
}

result<void> rights::require_all_rows() const {
    if (!exposed_ && !database_) return {};
    return make_failure(
        errc::forbidden,
        "The caller may not read every row of every table: its credential has exposed or database_role.");
}

identity make_identity(const std::string& principal, const rights_config& given, std::string credential,
                       std::string credential_name) {
    const boost::json::object claims{{"sub", principal}, {"role", given.database_role}};
    return {principal, rights(given, rights::time_point::max(), boost::json::serialize(claims)), std::move(credential),
            std::move(credential_name)};
}

certificate_rules::certificate_rules(const std::vector<certificate_config>& rules) {
    for (const auto& rule : rules) {
        entries_.emplace(std::pair(rule.compared, rule.value), callers_.size());
        const std::string credential = std::to_string(static_cast<int>(rule.compared)) + ':' + rule.value;
        callers_.push_back(std::make_shared<const identity>(
            make_identity(rule.principal, rule.rights, credential, name_of_certificate(rule.value))));
    }
}

bool certificate_rules::has(const identity& caller) const {
    return std::ranges::any_of(callers_, [&caller](const auto& known) {
        return known->credential == caller.credential && known->principal == caller.principal;
    });
}

std::shared_ptr<const identity> certificate_rules::find(const client_certificate& certificate) const {
    using field = certificate_config::field;
    std::size_t first = callers_.size();
    const auto compare = [&](field compared, const std::string& value) {
        const auto found = entries_.find({compared, value});
        if (found != entries_.end()) first = std::min(first, found->second);
    };
    compare(field::subject, certificate.subject);
    for (const auto& name : certificate.dns_names)
        compare(field::dns, name);
    for (const auto& uri : certificate.uris)
        compare(field::uri, uri);
    return first == callers_.size() ? nullptr : callers_[first];
}

}  // namespace fencegate::http
