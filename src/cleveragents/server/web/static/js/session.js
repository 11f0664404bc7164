// The session of the logged-in user, for views that depend on a role.

import { createContext, useContext } from "./ui.js";

const RANKS = { viewer: 0, operator: 1, admin: 2 };

export const SessionContext = createContext(null);

/** {user: {name, role, projects}, version, may, mayIn}. `may(role)`: whether the user has at least that role in any
 * project; `admin` means server admin. `mayIn(project, role)`: the same in one project. */
export function useSession() {
  const session = useContext(SessionContext);
  const rank = RANKS[session?.user?.role] ?? -1;
  const may = (role) => rank >= RANKS[role];
  const mayIn = (project, role) => may("admin") || (RANKS[session?.user?.projects?.[project]] ?? -1) >= RANKS[role];
  return { ...session, may, mayIn };
}
