#include <gateway/http/identity/identity.hpp>

#include <boost/json/serialize.hpp>

#include <utility>

namespace fencegate::http {

identity make_identity(const std::string& principal, const rights_config& given, std::string credential) {
    const boost::json::object claims{{"sub", principal}, {"role", given.database_role}};
    return {principal, rights(given, rights::time_point::max(), boost::json::serialize(claims)), std::move(credential)};
}

}  // namespace fencegate::http
