"""A run -> one page that can be sent to anybody: verdict, profile and figures, in a file that opens offline."""

from __future__ import annotations

from fedvitals.show.report.contents import Contents as Contents
from fedvitals.show.report.contents import contents_of as contents_of
from fedvitals.show.report.page import page as page
from fedvitals.show.report.page import write_report as write_report
