#include <gateway/api/carry_out_write.hpp>

#include <gateway/api/fencing.hpp>
#include <gateway/api/lease_access.hpp>
#include <gateway/api/lock_failures.hpp>
#include <gateway/http/problem.hpp>
#include <gateway/pg/pool.hpp>
#include <gateway/runtime/random.hpp>

#include <lockcore/lock_manager.hpp>

namespace fencegate::api {
namespace {

write_request make_write(write_call call, lockcore::lease_claims claims, const http::request& r) {
    write_request out;
    out.write_id = runtime::uuid_v7();
    out.by = acting(claims, r);
    out.resources = std::move(claims.resources);
    out.token = claims.token;
    out.operations = std::move(call.operations);
    out.return_rows = call.return_rows;
    out.select = std::move(call.select);
    return out;
}

}  // namespace

boost::asio::awaitable<http::response> carry_out_write(services with, write_call call, http::request r,
                                                       write_renderer render) {
    auto claims = open_fencing(with, call.lease_id, r);
    if (!claims) co_return http::problem_response(claims.error(), r.request_id);
    if (call.require_live) {
        if (call.lease_id.empty()) {
            co_return http::problem_response(invalid_field("/require_live", "needs a lease"), r.request_id);
        }
        const auto seen = co_await with.locks.inspect(*claims);
        if (!seen) co_return http::problem_response(to_failure(seen.error()), r.request_id);
    }
    write_report report;
    report.token = claims->token;
    const auto retell = std::move(call.retell);
    write_request write = make_write(std::move(call), std::move(*claims), r);
    report.write_id = write.write_id;
    auto outcome = co_await with.database.write(std::move(write), r.deadline);
    if (!outcome) {
        failure f = std::move(outcome.error());
        if (retell) retell(f);
        f.facts["write_id"] = report.write_id;
        co_return http::problem_response(f, r.request_id);
    }
    report.outcome = std::move(*outcome);
    co_return render(report);
}

}  // namespace fencegate::api
