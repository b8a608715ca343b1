#include <gateway/api/nodes.hpp>

#include <gateway/http/json_io.hpp>

#include <lockcore/lock_manager.hpp>

namespace fencegate::api {

const char* state_word(lockcore::node_state state) {
    switch (state) {
        case lockcore::node_state::voting:
            return "voting";
        case lockcore::node_state::quarantined:
            return "quarantined";
        case lockcore::node_state::misconfigured:
            return "misconfigured";
        case lockcore::node_state::identifying:
        case lockcore::node_state::unreachable:
            return "unreachable";
    }
    return "unreachable";
}

std::string render_nodes(const std::vector<lockcore::node_status>& nodes) {
    std::string out;
    out.reserve(64 + 320 * nodes.size());
    out += "{\"nodes\":[";
    for (const auto& node : nodes) {
        if (&node != nodes.data()) out += ',';
        http::object_writer item(out);
        item.text("name", node.name)
            .text("address", node.address)
            .text("state", state_word(node.state))
            .text_or_null("detail", node.detail);
        item.number("epoch", lockcore::value_of(node.admitted_epoch)).text_or_null("run_id", node.run_id);
        if (node.latency.count() > 0) {
            // Whole milliseconds as everywhere; most answers take less than one, so the microseconds stand beside them.
            item.number("latency_ms", std::chrono::round<std::chrono::milliseconds>(node.latency).count());
            item.number("latency_us", node.latency.count());
        } else {
            item.null("latency_ms").null("latency_us");
        }
        item.number("quarantine_left_ms", node.quarantine_left.count()).end();
    }
    out += "]}";
    return out;
}

boost::asio::awaitable<http::response> show_nodes(services with, http::request) {
    co_return http::json_response(render_nodes(with.locks.nodes()));
}

}  // namespace fencegate::api
