// What PostgreSQL answers: errors, and the outcomes of writes that it keeps.
#include "text_readers.hpp"

#include "fuzz.hpp"

#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/write/kept_outcome.hpp>

#include <spdlog/spdlog.h>
#include <boost/json/parse.hpp>

#include <algorithm>
#include <cctype>
#include <string>

namespace fencegate::fuzz {

// kept_outcome

namespace {

/// The failures that may be kept.
constexpr std::array refusals{errc::expectation_failed, errc::constraint_violation, errc::unprocessable};

void check_refusal(const failure& read) {
    require(!read.outcome_unknown, "a kept refusal is certain");
    if (read.code == errc::internal_error) return require(!read.replayed, "what can't be read is no kept outcome");
    require(std::ranges::find(refusals, read.code) != refusals.end(),
            "only refusals that follow from the data are kept");
    require(read.replayed && read.durability_unproven, "a kept refusal is marked as such");
    const http::response shown = http::problem_response(read, "r");
    require(shown.status >= 400 && shown.status < 500, "a kept refusal is the caller's");
    boost::json::error_code ec;
    const auto document = boost::json::parse(shown.body, ec);
    require(!ec && document.is_object(), "a refusal is shown as a JSON object");

    write_request request;
    if (const auto* id = read.facts.if_contains("write_id"); id != nullptr && id->is_string())
        request.write_id = id->get_string();
    const auto again = pg::read_kept(pg::write_kept(request, read));
    require(!again.has_value(), "a kept refusal that was read can be kept again");
    require(again.error().code == read.code && again.error().detail == read.detail &&
                again.error().errors.size() == read.errors.size(),
            "a kept refusal is read as it was");
}

bool is_equal(const operation_result& a, const operation_result& b) {
    return a.rows_affected == b.rows_affected && a.json == b.json && a.is_call == b.is_call &&
           (a.is_void == b.is_void || !a.is_call) && (a.total == b.total || a.is_call);
}

void check_outcome(const write_outcome& read) {
    require(read.replayed, "a kept outcome is marked as such");
    write_request request;
    request.write_id = read.write_id;
    const auto again = pg::read_kept(pg::write_kept(request, read));
    require(again.has_value(), "a kept outcome that was read can be kept again");
    require(again->write_id == read.write_id && again->token == read.token && again->sealed == read.sealed &&
                std::ranges::equal(again->results, read.results, is_equal) &&
                std::ranges::equal(again->fences, read.fences,
                                   [](const fence_state& a, const fence_state& b) {
                                       return a.resource == b.resource && a.last_fencing_token == b.last_fencing_token;
                                   }),
            "a kept outcome is read as it was");
}

}  // namespace

void check_kept_outcome(std::string_view input) {
    spdlog::set_level(spdlog::level::off);
    const auto read = pg::read_kept(input);
    if (read) {
        check_outcome(*read);
    } else {
        check_refusal(read.error());
    }
    const std::string_view state = take_line(input);
    const auto claim = pg::read_key_state(state, input);
    require(claim.has_value() == (state != "new"), "only a new key has no outcome");
    require(!claim || state == "kept" || !claim->has_value(), "only a kept outcome is answered as a success");
}

// server_error

void check_server_error(std::string_view input) {
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
