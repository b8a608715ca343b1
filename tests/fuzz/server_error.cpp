// Errors of PostgreSQL as libpq writes them. A hostile SQL user chooses the message, DETAIL and the names of constraints.
#include "fuzz.hpp"

#include <gateway/pg/connection/server_error.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>

#include <algorithm>
#include <cctype>
#include <string>

namespace fencegate::fuzz {

void run_input(std::string_view input) {
    const auto error = pg::parse_server_error(input);
    const bool has_form = error.sqlstate.size() == 5 && std::ranges::all_of(error.sqlstate, [](unsigned char c) {
                              return std::isdigit(c) != 0 || (c >= 'A' && c <= 'Z');
                          });
    require(error.sqlstate.empty() || has_form, "a SQLSTATE has five digits or letters");
    require(error.message.size() <= input.size(), "a message is a part of the text");
    for (const char* label : {"\nDETAIL:  ", "\nHINT:  ", "\nQUERY:  ", "\nCONTEXT:  ", "\nTABLE NAME:  "}) {
        require(error.message.find(label) == std::string::npos, "a message contains no other part of the error");
        require(error.constraint.find(label) == std::string::npos,
                "a constraint's name contains no other part of the error");
    }
    const failure shown = pg::to_failure(error);
    require(!shown.detail.empty(), "a failure says what happened");
    require(shown.facts.contains("sqlstate"), "a failure has the SQLSTATE");
    auto without_detail = error;
    without_detail.detail.clear();
    require(shown.detail == pg::to_failure(without_detail).detail, "DETAIL is not shown");
    pg::statement failed;
    failed.pointers = {"/operations/0", "/operations/1"};
    require(pg::to_failure(error, failed).errors.size() <= 1, "at most one value is at fault");
    pg::refusal_of_role(error);
    pg::may_be_outdated(error.sqlstate);
}

}  // namespace fencegate::fuzz
