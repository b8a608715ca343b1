#include <gateway/api/writes/writes.hpp>

#include <gateway/api/writes/write_body.hpp>
#include <gateway/http/codec/json_io.hpp>

namespace fencegate::api {
namespace {

void append_result(std::string& out, const operation_result& result) {
    http::object_writer item(out);
    if (result.is_call) {
        item.raw("value", result.json.empty() ? "null" : result.json);
    } else {
        item.number("rows_affected", result.rows_affected);
        if (!result.json.empty()) item.raw("rows", result.json);
    }
    item.end();
}

}  // namespace

std::string render_write(const write_report& report) {
    const write_outcome& outcome = report.outcome;
    std::size_t size = 256;
    for (const auto& result : outcome.results)
        size += 48 + result.json.size();
    std::string text;
    text.reserve(size);
    http::object_writer out(text);
    out.boolean("applied", true).text("write_id", outcome.write_id);
    if (report.own_lease) out.number("fencing_token", lockcore::value_of(outcome.token));
    out.key("fences");
    text += '[';
    for (const fence_state& fence : outcome.fences) {
        if (&fence != outcome.fences.data()) text += ',';
        http::object_writer item(text);
        item.text("resource", fence.resource).number("fencing_token", lockcore::value_of(outcome.token));
        item.number("last_fencing_token", fence.last_fencing_token).end();
    }
    text += ']';
    out.key("results");
    text += '[';
    for (const operation_result& result : outcome.results) {
        if (&result != outcome.results.data()) text += ',';
        append_result(text, result);
    }
    text += ']';
    if (outcome.rows_left_out) out.boolean("rows_left_out", true);
    if (report.release) {
        out.boolean("released", report.release->released);
        if (!outcome.sealed) out.boolean("sealed", false);
        if (report.release->holds_left > 0) out.number("hold_count", report.release->holds_left);
    }
    out.end();
    return text;
}

http::awaitable_response apply_write(const gateway_services& services, http::request r) {
    auto call = parse_write_body(r, services.settings.locks);
    if (!call) co_return call.error();
    const write_renderer render = [](const write_report& done) { return http::json_response(render_write(done)); };
    co_return co_await answer_write(services, std::move(*call), std::move(r), render);
}

}  // namespace fencegate::api
