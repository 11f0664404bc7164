// Who is logged in, for every view that shows or hides what a role may do.

import { createContext, useContext } from "./ui.js";

const RANKS = { viewer: 0, operator: 1, admin: 2 };

export const SessionContext = createContext(null);

/** {user: {name, role, projects}, version}; `may(role)`: whether the user has at least that role anywhere, and `admin` is
 * a server admin; `mayIn(project, role)`: whether they have it in that project. */
export function useSession() {
  const session = useContext(SessionContext);
  const rank = RANKS[session?.user?.role] ?? -1;
  const may = (role) => rank >= RANKS[role];
  const mayIn = (project, role) => may("admin") || (RANKS[session?.user?.projects?.[project]] ?? -1) >= RANKS[role];
  return { ...session, may, mayIn };
}
