#include <gateway/cli/interventions.hpp>

#include <gateway/cli/answers.hpp>
#include <gateway/cli/arguments.hpp>
#include <gateway/cli/output.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/json.hpp>

#include <unistd.h>

#include <iostream>

namespace fencegate::cli {
namespace {

/// Prints what was done: a line for a reader, or `facts` as JSON.
void print_done(const output_style& style, const boost::json::object& facts, const std::string& line) {
    std::cout << (style.table ? runtime::make_printable(line)
                              : runtime::prepare_for_stdout(boost::json::serialize(facts)))
              << std::endl;
}

/// Returns the fence of a resource.
std::uint64_t read_fence(const client& gateway, const std::string& resource) {
    const auto facts = gateway.get(make_target("/v1/resource", {{"resource", resource}}));
    return static_cast<std::uint64_t>(get_integer(facts.as_object(), "last_fencing_token").value_or(0));
}

/// Returns whether the user agrees to lower a fence. Throws usage_error where nobody can be asked.
bool ask_to_lower(const std::string& resource, std::uint64_t from, std::uint64_t to) {
    if (isatty(STDIN_FILENO) != 1) throw usage_error("the fence would be lower than now; that needs --yes");
    std::cerr << "Lower the fence of " << runtime::make_printable(resource) << " from " << from << " to " << to
              << "? Holders of tokens in between can write again. [y/N] " << std::flush;
    std::string answer;
    std::getline(std::cin, answer);
    return answer == "y" || answer == "yes";
}

}  // namespace

int revoke_leases(const client& gateway, const revocation& order, bool json_lines) {
    const output_style style = detect_output_style(json_lines);
    int status = exit_ok;
    for (const auto& resource : order.resources) {
        boost::json::object body{{"reason", order.reason}};
        if (order.token) body["expected_token"] = *order.token;
        http_request request;
        request.method = "DELETE";
        request.target = make_target("/v1/resource/lease", {{"resource", resource}});
        request.body = boost::json::serialize(body);
        const http_response response = gateway.call(request);
        if (response.is_success()) {
            print_done(style, {{"resource", resource}, {"revoked", true}}, "revoked: " + resource);
            continue;
        }
        runtime::print_error("revoke", resource + ": " + describe(response));
        status = response.status == 400 ? exit_usage : exit_failed;
    }
    return status;
}

int repair_fence(const client& gateway, const fence_repair& order, bool json_lines) {
    const output_style style = detect_output_style(json_lines);
    if (!order.confirmed) {
        const auto now = read_fence(gateway, order.resource);
        if (order.fence < now && !ask_to_lower(order.resource, now, order.fence)) {
            std::cerr << "nothing was changed\n";
            return exit_failed;
        }
    }
    http_request request;
    request.method = "POST";
    request.target = make_target("/v1/resource/fence", {{"resource", order.resource}});
    request.body =
        boost::json::serialize(boost::json::object{{"reason", order.reason}, {"last_fencing_token", order.fence}});
    // Not repeated at another gateway: the first may have set the fence, and others may have raised it since.
    const http_response response = gateway.call_once(std::move(request), {.timeout = gateway.timeout()});
    if (!response.is_success()) throw gateway_refusal(response);
    const auto set = parse_object(response.body);
    print_done(style, set, "the fence of " + order.resource + " is " + display_text(set, "last_fencing_token"));
    return exit_ok;
}

}  // namespace fencegate::cli
