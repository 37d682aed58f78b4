/* conversation.h: the messages and tools of a chat request: whether they have the right shape, and
 * the prompt that the model's template makes of them. */
#ifndef PHI_SERVER_API_CONVERSATION_H
#define PHI_SERVER_API_CONVERSATION_H

#include "server/api/fields.h"
#include "server/state.h"

/* Shapes of messages, tools and tool_choice; errors name the place: "messages[1].content[0].text".
 */
enum phi_status phi_conversation_check(const struct phi_fields *f, struct phi_refusal *r);

/* The prompt; *text is the caller's (phi_mem_free). */
enum phi_status phi_conversation_render(const struct phi_server *s, const struct phi_fields *f,
                                        char **text, size_t *n_text, struct phi_refusal *r);

#endif
