// In place of the product's session, which needs a server: what the targets read opens none.
#include "fuzz.hpp"

#include <gateway/pg/connection/session.hpp>

namespace fencegate::pg {
namespace {

void refuse() {
    fuzz::require(false, "reading an input needs no database");
}

}  // namespace

pqxx::result session::exec(const std::string&, const compat::parameters&) {
    refuse();
    return {};
}

pqxx::result session::exec_once(const std::string&, const compat::parameters&) {
    refuse();
    return {};
}

void session::read_each(const std::string&, const compat::parameters&,
                        const std::function<void(const answer_rows& row)>&) {
    refuse();
}

void session::command(const std::string&) {
    refuse();
}

const char* answer_rows::text(int, int) const {
    refuse();
    return "";
}

}  // namespace fencegate::pg
