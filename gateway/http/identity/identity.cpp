#include <gateway/http/identity/identity.hpp>

#include <boost/json/serialize.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::http {

identity make_identity(const std::string& principal, const rights_config& given, std::string credential) {
    const boost::json::object claims{{"sub", principal}, {"role", given.database_role}};
    return {principal, rights(given, rights::time_point::max(), boost::json::serialize(claims)), std::move(credential)};
}

certificate_rules::certificate_rules(const std::vector<certificate_config>& rules) {
    for (const auto& rule : rules) {
        entries_.emplace(std::pair(rule.compared, rule.value), callers_.size());
        const std::string credential = std::to_string(static_cast<int>(rule.compared)) + ':' + rule.value;
        callers_.push_back(std::make_shared<const identity>(make_identity(rule.principal, rule.rights, credential)));
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
