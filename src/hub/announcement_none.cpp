#include "hub/announcement.h"

namespace linkcpp::hub {

Result<std::unique_ptr<Announcement>> Announcement::start(const AnnouncementSettings&) {
    return {Code::unsupported,
            "this hub was built without mDNS, so it cannot announce itself; workers name it with --hub"};
}

}  // namespace linkcpp::hub
