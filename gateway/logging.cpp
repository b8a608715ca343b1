#include <gateway/logging.hpp>

#include <gateway/runtime/log.hpp>
#include <gateway/runtime/text.hpp>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

namespace fencegate {
namespace {

std::string quote_json(std::string_view text) {
    return boost::json::serialize(boost::json::string(text));
}

/// Returns a value as the text format has it: quoted where a reader could not see its end.
std::string render_plain(std::string_view text) {
    return text.find_first_of(" \"=") == std::string_view::npos ? std::string(text) : quote_json(text);
}

/// Calls `append(name, value)` for each field of the line; `quote` renders a text.
void for_each_field(const std::function<std::string(std::string_view)>& quote,
                    const std::function<void(std::string_view, const std::string&)>& append) {
    for (const runtime::log_field& field : runtime::current_log_fields()) {
        if (const auto* number = std::get_if<std::int64_t>(&field.value)) {
            append(field.name, std::to_string(*number));
        } else if (const auto text = std::get<std::string_view>(field.value); !text.empty()) {
            append(field.name, quote(text));
        }
    }
}

/// Formats the message as a JSON string with its quotes, and the fields as members; spdlog's %v escapes nothing.
class json_message final : public spdlog::custom_flag_formatter {
  public:
    void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
        std::string text = quote_json({message.payload.data(), message.payload.size()});
        for_each_field(quote_json, [&](std::string_view name, const std::string& value) {
            text += "," + quote_json(name) + ":" + value;
        });
        out.append(text.data(), text.data() + text.size());
    }
    std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<json_message>(); }
};

/// Formats message and fields as plain text that can't control a terminal: it may have what a node or a caller sent.
class plain_message final : public spdlog::custom_flag_formatter {
  public:
    void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
        std::string text(message.payload.data(), message.payload.size());
        for_each_field(render_plain, [&](std::string_view name, const std::string& value) {
            text.append(" ").append(name).append("=").append(value);
        });
        text = runtime::make_printable(text);
        out.append(text.data(), text.data() + text.size());
    }
    std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<plain_message>(); }
};

spdlog::level::level_enum level_of(lockcore::node_state state) {
    using lockcore::node_state;
    return state == node_state::voting || state == node_state::identifying ? spdlog::level::info : spdlog::level::warn;
}

}  // namespace

void start_logging(const log_config& cfg) {
    auto logger = std::make_shared<spdlog::logger>("fencegate", std::make_shared<spdlog::sinks::stdout_sink_mt>());
    logger->flush_on(spdlog::level::info);
    auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
    if (cfg.json) {
        formatter->add_flag<json_message>('*').set_pattern(
            R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","thread":%t,"message":%*})");
    } else {
        formatter->add_flag<plain_message>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e %l %*");
    }
    logger->set_formatter(std::move(formatter));
    spdlog::set_default_logger(std::move(logger));
    set_log_level(cfg.level);
}

void set_log_level(const std::string& level) {
    spdlog::default_logger_raw()->set_level(spdlog::level::from_str(level));
}

void node_log::on_node_change(const lockcore::node_change& change) {
    const std::lock_guard hold(mutex_);
    auto& lines = by_name_[change.name];
    if (!lines) lines = std::make_unique<node_lines>(io_);
    lines->latest = change;
    if (lines->written == 0) {
        lines->window_end.expires_after(window);
        lines->window_end.async_wait([this, node = lines.get()](boost::system::error_code e) {
            if (!e) end_window(*node);
        });
    }
    if (lines->written == lines_max) {
        ++lines->left_out;
        return;
    }
    ++lines->written;
    runtime::log(level_of(change.new_state), "node changed its state",
                 {{"node", change.name},
                  {"old_state", lockcore::to_string(change.old_state)},
                  {"new_state", lockcore::to_string(change.new_state)},
                  {"detail", change.detail}});
}

void node_log::end_window(node_lines& lines) {
    const std::lock_guard hold(mutex_);
    if (lines.left_out > 0) {
        runtime::log(spdlog::level::warn, "node changed its state more often",
                     {{"node", lines.latest.name},
                      {"left_out", lines.left_out},
                      {"within_s", window.count()},
                      {"new_state", lockcore::to_string(lines.latest.new_state)},
                      {"detail", lines.latest.detail}});
    }
    lines.written = lines.left_out = 0;
}

}  // namespace fencegate
