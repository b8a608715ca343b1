#include <gateway/admin/report.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace fencegate::admin {
namespace {

verification_result make_report(std::string_view state_of_table) {
    verification_result found;
    found.counts.rows = 1;
    found.guard_state = {{"tables",
                          {{{"table", "public.orders"},
                            {"state", state_of_table},
                            {"reason", nullptr},
                            {"since", nullptr},
                            {"not_before", nullptr},
                            {"principal", nullptr},
                            {"faults", boost::json::array{}}}}},
                         {"faults", boost::json::array{}},
                         {"limits", boost::json::array{}}};
    return found;
}

constexpr std::string_view not_proved =
    "Not proved for the tables and times named above: the history says nothing of changes there.\n";

TEST(admin_report, text_says_proved_alone_if_the_guard_checked_every_change) {
    EXPECT_TRUE(render_text(make_report("enforced")).ends_with("\nProved.\n"));
}

TEST(admin_report, text_does_not_say_proved_of_times_without_checks) {
    auto found = make_report("enforced");
    guard_change change;
    change.at_us = 2;
    change.not_before_us = 1;
    change.table = "public.orders";
    change.faults = {"its checks were altered"};
    for (const auto* action : {"fault_found", "fault_gone"}) {
        change.action = action;
        found.protection.add(change);
        ++change.at_us;
    }
    found.protection.finish();
    const std::string text = render_text(found);
    EXPECT_TRUE(text.ends_with(not_proved)) << text;
    EXPECT_EQ(text.find("Proved.\n"), std::string::npos) << text;
    found.violations = 1;
    EXPECT_TRUE(render_text(found).ends_with("Broken: 1 findings.\n" + std::string(not_proved)));
}

TEST(admin_report, text_does_not_say_proved_of_tables_open_now) {
    // The history may no longer have the change that opened them.
    for (const auto* state : {"open", "observed"})
        EXPECT_TRUE(render_text(make_report(state)).ends_with(not_proved)) << state;
    auto found = make_report("enforced");
    found.guard_state["faults"].as_array().emplace_back("a fault of no table");
    EXPECT_TRUE(render_text(found).ends_with(not_proved));
}

TEST(admin_report, text_does_not_say_proved_alone_if_something_is_not_noticed) {
    auto found = make_report("enforced");
    found.guard_state["limits"].as_array().emplace_back("event triggers are missing");
    EXPECT_TRUE(
        render_text(found).ends_with("\nProved, except for what this installation does not notice.\n"
                                     "Not noticed by this installation: event triggers are missing.\n"));
}

TEST(admin_report, text_has_no_control_characters_of_names) {
    verification_result found;
    found.findings.push_back({'b', 1, "~\x1b[2J\n  holds   b  forged", "by \x1b]0;x\x07"});
    found.violations = 1;
    found.guard_state = {{"tables",
                          {{{"table", "x\x1b[2J"},
                            {"state", "open"},
                            {"reason", "unprotected"},
                            {"since", nullptr},
                            {"not_before", nullptr},
                            {"principal", "mal\x07"},
                            {"faults", boost::json::array{}}}}},
                         {"faults", boost::json::array{}},
                         {"limits", boost::json::array{"event triggers are missing"}}};
    guard_change change;
    change.at_us = 1;
    change.action = "unprotect";
    change.table = "public.\"a\nb\"";
    change.principal = "\x1b[2Jeve";
    found.protection.add(change);
    found.protection.finish();
    const std::string text = render_text(found);
    EXPECT_EQ(text.find_first_of("\x1b\x07"), std::string::npos) << text;
    EXPECT_EQ(text.find("\n  holds   b  forged"), std::string::npos) << text;
    EXPECT_NE(text.find("row 1, ~?[2J?  holds   b  forged (b): by ?]0;x?\n"), std::string::npos) << text;
    EXPECT_NE(text.find("public.\"a?b\""), std::string::npos) << text;
    EXPECT_NE(text.find(", by ?[2Jeve\n"), std::string::npos) << text;
    EXPECT_NE(text.find("tables: 1 open, 0 observed, 0 enforced; 0 faults\n"), std::string::npos) << text;
    EXPECT_NE(text.find("x?[2J is open, by mal?: unprotect() was called\n"), std::string::npos) << text;
    EXPECT_TRUE(text.ends_with("Not noticed by this installation: event triggers are missing.\n")) << text;
}

}  // namespace
}  // namespace fencegate::admin
