// Times of the query parameters.
#include "fuzz.hpp"

#include <gateway/runtime/rfc3339.hpp>

namespace fencegate::fuzz {

void run_input(std::string_view input) {
    const auto time = runtime::parse_rfc3339(input);
    if (!time) return;
    const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(*time);
    const std::string written = runtime::to_rfc3339(*time);
    require(written.size() == std::string_view("2026-11-21T10:00:09.894Z").size(), "a time has a fixed form");
    // The offset of a time in the first or last year that is accepted can move it into another year.
    const bool is_accepted_year = written >= "1678" && written < "2262";
    require(!is_accepted_year || runtime::parse_rfc3339(written) == milliseconds,
            "a time that was written is read as it was, to the millisecond");
    require(runtime::to_rfc3339(milliseconds) == written, "a time is truncated to milliseconds");
    require(runtime::to_http_date(*time).size() == std::string_view("Sat, 21 Nov 2026 10:00:09 GMT").size(),
            "a date has a fixed form");
}

}  // namespace fencegate::fuzz
