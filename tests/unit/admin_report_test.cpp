#include <gateway/admin/report.hpp>

#include <gtest/gtest.h>

#include <string>

namespace fencegate::admin {
namespace {

TEST(admin_report, text_has_no_control_characters_of_names) {
    verification_result found;
    found.findings.push_back({'b', 1, "~\x1b[2J\n  holds   b  forged", "by \x1b]0;x\x07"});
    found.broken = 1;
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
