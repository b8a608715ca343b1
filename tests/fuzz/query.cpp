// Query strings.
#include "fuzz.hpp"

#include <gateway/http/codec/query.hpp>
#include <gateway/runtime/percent_encoding.hpp>

#include <string>

namespace fencegate::fuzz {

void run_input(std::string_view input) {
    http::fault_list faults;
    const auto parameters = http::query_parameters(input, faults);
    require(parameters.size() <= http::parameters_max, "the number of parameters is bounded");
    if (faults.empty()) {
        std::string written;
        for (const auto& [name, value] : parameters) {
            if (!written.empty()) written += '&';
            written += runtime::percent_encode(name) + '=' + runtime::percent_encode(value);
            require((name + value).find('\0') == std::string::npos, "no parameter contains U+0000");
        }
        require(http::query_parameters(written, faults) == parameters && faults.empty(),
                "parameters that were written are read as they were");
    }
    http::fault_list faults_of_reader;
    const http::query_reader reader(input, {"a", "limit", "wait"}, faults_of_reader);
    const auto limit = reader.integer("limit", {.lowest = -5, .highest = 1000});
    require(!limit || (*limit >= -5 && *limit <= 1000), "a number is within its bounds");
    reader.boolean("wait");
    require(std::move(faults_of_reader).to_failure().errors.size() <= field_errors_max,
            "the number of faults is bounded");
}

}  // namespace fencegate::fuzz
