#include <gateway/http/identity/identity.hpp>

#include <boost/json/serialize.hpp>

namespace fencegate::http {

identity make_identity(const std::string& principal, const rights_config& given) {
    const boost::json::object claims{{"sub", principal}, {"role", given.database_role}};
    return {principal, rights(given, rights::time_point::max(), boost::json::serialize(claims))};
}

}  // namespace fencegate::http
